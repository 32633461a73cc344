/*
 * A stand-in nvidia-smi for bench/peers.py: eight GPUs, 50 ms a call. Utilisation is read from the file named by
 * CLUSTERTOP_TEST_NVML (a line "all util N"), so that it and the stand-in NVML tell the same.
 * Answers --query-gpu=FIELDS (with -lms N: for ever), --query-compute-apps (nothing runs) and -q -x.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int util(void) {
    const char *path = getenv("CLUSTERTOP_TEST_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char row[256];
    int value = 0;
    if (!file) return 0;
    while (fgets(row, sizeof row, file)) sscanf(row, "all util %d", &value);
    fclose(file);
    return value;
}

static void field(const char *name, int gpu, int busy) {
    if (!strcmp(name, "index")) printf("%d", gpu);
    else if (!strcmp(name, "uuid")) printf("GPU-00000000-0000-0000-0000-00000000000%d", gpu);
    else if (!strcmp(name, "name")) printf("NVIDIA H100 80GB HBM3");
    else if (!strcmp(name, "utilization.gpu")) printf("%d", busy);
    else if (!strcmp(name, "memory.used")) printf("61440");
    else if (!strcmp(name, "memory.total")) printf("81920");
    else if (!strcmp(name, "temperature.gpu")) printf("61");
    else if (!strcmp(name, "power.draw")) printf("512.00");
    else if (!strcmp(name, "power.limit")) printf("700.00");
    else printf("[N/A]");
}

static void rows(const char *fields) {
    int busy = util();
    usleep(50000);
    for (int gpu = 0; gpu < 8; gpu++) {
        char list[512], *name, *rest;
        snprintf(list, sizeof list, "%s", fields);
        rest = list;
        while ((name = strsep(&rest, ","))) {
            field(name, gpu, busy);
            printf(rest ? ", " : "\n");
        }
    }
    fflush(stdout);
}

static void xml(void) {
    int busy = util();
    usleep(50000);
    printf("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n<attached_gpus>8</attached_gpus>\n");
    for (int gpu = 0; gpu < 8; gpu++)
        printf("<gpu id=\"00000000:%02X:00.0\"><product_name>NVIDIA H100 80GB HBM3</product_name>"
               "<fb_memory_usage><total>81920 MiB</total><used>61440 MiB</used></fb_memory_usage>"
               "<utilization><gpu_util>%d %%</gpu_util></utilization><processes></processes></gpu>\n", gpu * 8, busy);
    printf("</nvidia_smi_log>\n");
}

int main(int count, char **words) {
    const char *fields = NULL;
    int loop_ms = 0, as_xml = 0;
    for (int at = 1; at < count; at++) {
        if (!strncmp(words[at], "--query-gpu=", 12)) fields = words[at] + 12;
        else if (!strncmp(words[at], "--query-compute-apps", 20)) { usleep(50000); return 0; }
        else if (!strcmp(words[at], "-x")) as_xml = 1;
        else if (!strcmp(words[at], "-lms") && at + 1 < count) loop_ms = atoi(words[++at]);
    }
    if (as_xml) { xml(); return 0; }
    if (!fields) return 1;
    do {
        rows(fields);
        if (loop_ms) usleep(loop_ms * 1000);
    } while (loop_ms && !ferror(stdout));
    return 0;
}
