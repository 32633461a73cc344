/*
 * An NVML of our own for tests: the functions that the probe calls, with the ABI of nvml.h, answering from the
 * scenario file named by CLUSTERTOP_TEST_NVML. The file is read again at every call that finds it changed.
 *
 *   init 18                      error code of nvmlInit
 *   init_ms 700                  how long that takes
 *   driver 550.90.07             words of the driver, cuda 12040
 *   count 8                      devices; count_error 999
 *   all power_mw 412000          a value of every device
 *   3 power_mw 4294967295        a value of device 3
 *   3 !nvmlDeviceGetPowerUsage 3 that function answers error 3 for device 3 (all ! ... for every one)
 *   5 lost                       every call on device 5 answers 15, and so does its handle
 *   2 hang nvmlDeviceGetPowerUsage   that call does not return while this line is there
 *   without nvmlDeviceGetRemappedRows   the driver answers 13 (Function Not Found) for it
 *   3 field_52 7                 value of a field of GetFieldValues; 3 field_52_error 3: the error of that field
 *   all nvlink_links 18          links; 3 nvlink_down 2: the last two of them are down
 *   2 mig_instances 3            with mig_profile 1g.10gb and mig_memory 10200547328
 *   event 3 79                   an Xid event of GPU 3, given once; event_error 15: what the wait answers
 *   2 process 4242 1073741824    a process that computes on GPU 2, and its memory
 *   device_file PATH             held open from init to shutdown, as the driver's devices are
 *   hang_events 1                a wait for events does not return while this line is there
 *
 * Calls are counted by function into CLUSTERTOP_TEST_NVML with ".calls" added, written at every shutdown and at
 * every nvmlDeviceGetCount.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { int index; } *nvmlDevice_t;
typedef unsigned long long u64;

#define MAX_GPUS 16
#define MAX_LINES 2048

struct line { int gpu; char key[64]; char value[128]; };

static struct line lines[MAX_LINES];
static int line_count;
static struct timespec read_at;
static off_t read_size = -1;
static ino_t read_inode;
static int running;
static struct device { int index, slot; } devices[MAX_GPUS], parts[MAX_GPUS][16];
static int device_file = -1;
static int given; /* events */
static struct { char name[64]; unsigned long calls; } counts[128];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void load(void) {
    const char *path = getenv("CLUSTERTOP_TEST_NVML");
    struct stat st;
    char row[512];
    FILE *file;
    if (!path || stat(path, &st) != 0) return;
    if (st.st_size == read_size && st.st_ino == read_inode && st.st_mtim.tv_sec == read_at.tv_sec
        && st.st_mtim.tv_nsec == read_at.tv_nsec)
        return;
    file = fopen(path, "r");
    if (!file) return;
    line_count = 0;
    while (line_count < MAX_LINES && fgets(row, sizeof row, file)) {
        struct line *line = &lines[line_count];
        char first[64], rest[192];
        memset(line, 0, sizeof *line);
        if (row[0] == '#' || sscanf(row, "%63s %191[^\n]", first, rest) < 1) continue;
        if (strcmp(first, "all") == 0) line->gpu = -1;
        else if (first[0] >= '0' && first[0] <= '9') line->gpu = atoi(first);
        else {
            line->gpu = -2;
            sscanf(row, "%63s %127[^\n]", line->key, line->value);
            line_count++;
            continue;
        }
        if (sscanf(rest, "%63s %127[^\n]", line->key, line->value) < 1) continue;
        line_count++;
    }
    fclose(file);
    read_at = st.st_mtim;
    read_size = st.st_size;
    read_inode = st.st_ino;
}

/* The last line wins, one of the device itself before one of all. */
static const char *find(int gpu, const char *key) {
    int pass, at;
    for (pass = 0; pass < 2; pass++)
        for (at = line_count - 1; at >= 0; at--)
            if (lines[at].gpu == (pass || gpu == -2 ? (gpu == -2 ? -2 : -1) : gpu) && strcmp(lines[at].key, key) == 0)
                return lines[at].value;
    return NULL;
}

static int pair(int gpu, const char *key, const char *value) {
    int at;
    for (at = 0; at < line_count; at++)
        if ((lines[at].gpu == gpu || lines[at].gpu == -1) && strcmp(lines[at].key, key) == 0
            && strcmp(lines[at].value, value) == 0)
            return 1;
    return 0;
}

static u64 number(int gpu, const char *key, u64 otherwise) {
    const char *value = find(gpu, key);
    return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

static void save(void) {
    const char *path = getenv("CLUSTERTOP_TEST_NVML");
    char name[1024], temporary[1100];
    FILE *file;
    int at;
    if (!path || !find(-2, "count_calls")) return;
    snprintf(name, sizeof name, "%s.calls", path);
    snprintf(temporary, sizeof temporary, "%s.new", name);
    file = fopen(temporary, "w");
    if (!file) return;
    for (at = 0; at < 128 && counts[at].name[0]; at++) fprintf(file, "%s %lu\n", counts[at].name, counts[at].calls);
    fclose(file);
    rename(temporary, name);
}

/* Count the call, hang where the scenario says so, and return the error it gives, or 0. */
static nvmlReturn_t enter(int gpu, const char *function) {
    char key[80];
    const char *code;
    int at;
    pthread_mutex_lock(&lock);
    load();
    for (at = 0; at < 128; at++) {
        if (!counts[at].name[0]) strncpy(counts[at].name, function, sizeof counts[at].name - 1);
        if (strcmp(counts[at].name, function) == 0) {
            counts[at].calls++;
            break;
        }
    }
    while (pair(gpu, "hang", function)) {
        struct timespec pause = {0, 20000000};
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&lock);
        load();
    }
    snprintf(key, sizeof key, "!%s", function);
    code = find(gpu < 0 ? -2 : gpu, key);
    if (!code) {
        for (at = 0; at < line_count; at++)
            if (lines[at].gpu == -2 && strcmp(lines[at].key, "without") == 0 && strcmp(lines[at].value, function) == 0)
                code = "13";
    }
    if (!code && find(-2, "gone")) code = find(-2, "gone");
    if (!code && gpu >= 0 && find(gpu, "lost")) code = "15";
    if (!code && !running) code = "1";
    at = code ? atoi(code) : 0;
    pthread_mutex_unlock(&lock);
    return at;
}

static u64 get(int gpu, const char *key, u64 otherwise) {
    u64 value;
    pthread_mutex_lock(&lock);
    value = number(gpu, key, otherwise);
    pthread_mutex_unlock(&lock);
    return value;
}

static void words(int gpu, const char *key, const char *otherwise, char *out, unsigned length) {
    const char *value;
    pthread_mutex_lock(&lock);
    value = find(gpu, key);
    snprintf(out, length, "%s", value && *value ? value : otherwise);
    pthread_mutex_unlock(&lock);
}

#define ENTER(gpu) \
    do { nvmlReturn_t code_ = enter(gpu, __func__); if (code_) return code_; } while (0)

const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    u64 code;
    (void)flags;
    running++;
    code = enter(-2, __func__);
    if (!code) code = get(-2, "init", 0);
    if (get(-2, "init_ms", 0)) usleep((useconds_t)(1000 * get(-2, "init_ms", 0)));
    if (code) running--;
    pthread_mutex_lock(&lock);
    if (!code && device_file < 0 && find(-2, "device_file"))
        device_file = open(find(-2, "device_file"), O_RDONLY | O_CLOEXEC);
    pthread_mutex_unlock(&lock);
    return (nvmlReturn_t)code;
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t code = enter(-2, __func__);
    pthread_mutex_lock(&lock);
    save();
    pthread_mutex_unlock(&lock);
    if (running > 0) running--;
    if (!running && device_file >= 0) {
        close(device_file);
        device_file = -1;
    }
    return code;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) {
    ENTER(-2);
    words(-2, "driver", "550.90.07", out, length);
    return 0;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length) {
    ENTER(-2);
    words(-2, "nvml", "12.550.90.07", out, length);
    return 0;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out) {
    ENTER(-2);
    *out = (int)get(-2, "cuda", 12040);
    return 0;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) {
    u64 code;
    ENTER(-2);
    pthread_mutex_lock(&lock);
    save();
    pthread_mutex_unlock(&lock);
    code = get(-2, "count_error", 0);
    *out = (unsigned)get(-2, "count", 8);
    if (*out > MAX_GPUS) *out = MAX_GPUS;
    return (nvmlReturn_t)code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    if (index >= MAX_GPUS) return 2;
    ENTER((int)index);
    devices[index].index = (int)index;
    *out = &devices[index];
    return 0;
}

#define GPU(device) (((int *)(device))[0])

nvmlReturn_t nvmlDeviceGetUUID(void *device, char *out, unsigned length) {
    char uuid[80];
    ENTER(GPU(device));
    snprintf(uuid, sizeof uuid, "GPU-5eed0000-0000-4000-8000-%012d", GPU(device));
    words(GPU(device), "uuid", uuid, out, length);
    return 0;
}

nvmlReturn_t nvmlDeviceGetName(void *device, char *out, unsigned length) {
    ENTER(GPU(device));
    if (((struct device *)device)->slot) {
        char profile[64];
        words(GPU(device), "mig_profile", "1g.10gb", profile, sizeof profile);
        snprintf(out, length, "NVIDIA H100 80GB HBM3 MIG %s", profile);
        return 0;
    }
    words(GPU(device), "name", "NVIDIA H100 80GB HBM3", out, length);
    return 0;
}

nvmlReturn_t nvmlDeviceGetSerial(void *device, char *out, unsigned length) {
    char serial[32];
    ENTER(GPU(device));
    snprintf(serial, sizeof serial, "16500230%05d", GPU(device));
    words(GPU(device), "serial", serial, out, length);
    return 0;
}

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

nvmlReturn_t nvmlDeviceGetPciInfo_v3(void *device, nvmlPciInfo_t *out) {
    char pci[32];
    ENTER(GPU(device));
    memset(out, 0, sizeof *out);
    snprintf(pci, sizeof pci, "00000000:%02X:00.0", 0x17 + 0x11 * (GPU(device) % 13));
    words(GPU(device), "pci", pci, out->busId, sizeof out->busId);
    return 0;
}

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;

nvmlReturn_t nvmlDeviceGetUtilizationRates(void *device, nvmlUtilization_t *out) {
    ENTER(GPU(device));
    out->gpu = (unsigned)get(GPU(device), "util", 97);
    out->memory = (unsigned)get(GPU(device), "mem_util", 41);
    return 0;
}

typedef struct { u64 total, free, used; } nvmlMemory_t;

nvmlReturn_t nvmlDeviceGetMemoryInfo(void *device, nvmlMemory_t *out) {
    ENTER(GPU(device));
    if (((struct device *)device)->slot) {
        out->total = get(GPU(device), "mig_memory", 10200547328ULL);
        out->used = out->free = 0;
        return 0;
    }
    out->total = get(GPU(device), "mem_total", 85520809984ULL);
    out->used = get(GPU(device), "mem_used", 61203283968ULL);
    out->free = out->total - out->used;
    return 0;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(void *device, nvmlMemory_t *out) {
    ENTER(GPU(device));
    out->total = get(GPU(device), "bar1_total", 137438953472ULL);
    out->used = 1048576;
    out->free = out->total - out->used;
    return 0;
}

#define UINT(function, key, otherwise) \
    nvmlReturn_t function(void *device, unsigned *out) { \
        ENTER(GPU(device)); \
        *out = (unsigned)get(GPU(device), key, otherwise); \
        return 0; \
    }

UINT(nvmlDeviceGetMinorNumber, "minor", (u64)GPU(device))
UINT(nvmlDeviceGetPowerUsage, "power_mw", 512000)
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", 700000)
UINT(nvmlDeviceGetPerformanceState, "pstate", 0)
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen", 5)
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max", 5)
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_gen_devmax", 5)
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays", 0)
UINT(nvmlDeviceGetPersistenceMode, "persistence", 1)
UINT(nvmlDeviceGetFanSpeed, "fan", 40)
UINT(nvmlDeviceGetMaxMigDeviceCount, "mig_max", 7)

#define TEXT(function, key, otherwise) \
    nvmlReturn_t function(void *device, char *out, unsigned length) { \
        ENTER(GPU(device)); \
        words(GPU(device), key, otherwise, out, length); \
        return 0; \
    }

TEXT(nvmlDeviceGetBoardPartNumber, "part", "692-2G520-0200-000")
TEXT(nvmlDeviceGetVbiosVersion, "vbios", "96.00.74.00.01")

nvmlReturn_t nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out) {
    u64 links;
    ENTER(GPU(device));
    links = get(GPU(device), "nvlink_links", 18);
    if (!links) return 3;
    if (link >= links) return 2;
    *out = link < links - get(GPU(device), "nvlink_down", 0);
    return 0;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned slot, void **out) {
    int gpu = GPU(device);
    ENTER(gpu);
    if (slot >= 15) return 2;
    if (slot >= get(gpu, "mig_instances", 0)) return 6;
    parts[gpu][slot].index = gpu;
    parts[gpu][slot].slot = (int)slot + 1;
    *out = &parts[gpu][slot];
    return 0;
}

typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } nvmlProcessInfo_t;

static nvmlReturn_t processes(int gpu, unsigned *count, nvmlProcessInfo_t *out) {
    unsigned room = *count, found = 0;
    int at;
    pthread_mutex_lock(&lock);
    for (at = 0; at < line_count; at++) {
        unsigned pid;
        u64 used;
        if (lines[at].gpu != gpu || strcmp(lines[at].key, "process") != 0) continue;
        if (sscanf(lines[at].value, "%u %llu", &pid, &used) != 2) continue;
        if (found < room && out) {
            out[found].pid = pid;
            out[found].used = used;
            out[found].gpu_instance = out[found].compute_instance = 0xFFFFFFFF;
        }
        found++;
    }
    pthread_mutex_unlock(&lock);
    *count = found;
    return found > room ? 7 : 0;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, nvmlProcessInfo_t *out) {
    ENTER(GPU(device));
    return processes(GPU(device), count, out);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, nvmlProcessInfo_t *out) {
    ENTER(GPU(device));
    return processes(GPU(device), count, out);
}

typedef struct { void *device; u64 type, data; unsigned gpu_instance, compute_instance; } nvmlEventData_t;

static int events(int number, int *gpu, unsigned *code) {
    int at, found = 0;
    for (at = 0; at < line_count; at++)
        if (lines[at].gpu == -2 && strcmp(lines[at].key, "event") == 0 && ++found == number)
            sscanf(lines[at].value, "%d %u", gpu, code);
    return found;
}

nvmlReturn_t nvmlEventSetCreate(void **out) {
    ENTER(-2);
    *out = &given;
    return 0;
}

nvmlReturn_t nvmlEventSetFree(void *set) {
    (void)set;
    ENTER(-2);
    return 0;
}

nvmlReturn_t nvmlDeviceRegisterEvents(void *device, u64 types, void *set) {
    int gpu;
    unsigned code;
    (void)set;
    ENTER(GPU(device));
    if (types != 8) return 2;
    pthread_mutex_lock(&lock);
    if (given == 0) given = events(0, &gpu, &code); /* what came before is not given */
    pthread_mutex_unlock(&lock);
    return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(void *set, nvmlEventData_t *out, unsigned timeout) {
    struct timespec pause = {0, 70000000};
    unsigned waited, code = 0;
    int gpu = 0;
    (void)set;
    ENTER(-2);
    for (waited = 0; waited < timeout || get(-2, "hang_events", 0); waited += 70) {
        u64 error;
        pthread_mutex_lock(&lock);
        load();
        if (events(given + 1, &gpu, &code) > given) {
            given++;
            pthread_mutex_unlock(&lock);
            memset(out, 0, sizeof *out);
            out->device = &devices[gpu];
            out->type = 8;
            out->data = code;
            return 0;
        }
        pthread_mutex_unlock(&lock);
        error = get(-2, "event_error", 0);
        if (error) return (nvmlReturn_t)error;
        nanosleep(&pause, NULL);
    }
    return 10;
}

/* What must never be called: profiling, sampling, GPM, accounting, and whatever changes a setting. */
#define FORBIDDEN(function) \
    nvmlReturn_t function(void) { \
        enter(-2, __func__); \
        return 4; \
    }

FORBIDDEN(nvmlGpmSampleAlloc)
FORBIDDEN(nvmlGpmSampleGet)
FORBIDDEN(nvmlGpmMetricsGet)
FORBIDDEN(nvmlGpmQueryDeviceSupport)
FORBIDDEN(nvmlGpmSetStreamingEnabled)
FORBIDDEN(nvmlDeviceGetSamples)
FORBIDDEN(nvmlDeviceGetPcieThroughput)
FORBIDDEN(nvmlDeviceGetProcessUtilization)
FORBIDDEN(nvmlDeviceGetAccountingStats)
FORBIDDEN(nvmlDeviceGetGraphicsRunningProcesses_v3)
FORBIDDEN(nvmlDeviceSetPersistenceMode)
FORBIDDEN(nvmlDeviceSetNvLinkUtilizationControl)
FORBIDDEN(nvmlDeviceResetNvLinkErrorCounters)
FORBIDDEN(nvmlDeviceClearEccErrorCounts)

nvmlReturn_t nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out) {
    ENTER(GPU(device));
    (void)sensor;
    *out = (unsigned)get(GPU(device), "temp", 58);
    return 0;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(void *device, int which, unsigned *out) {
    static const char *keys[] = {"temp_shutdown", "temp_slowdown", "temp_mem_max"};
    static const unsigned usual[] = {92, 87, 95};
    ENTER(GPU(device));
    if (which < 0 || which > 2) return 2;
    *out = (unsigned)get(GPU(device), keys[which], usual[which]);
    return 0;
}

typedef struct { unsigned version; int margin; } nvmlMarginTemperature_t;

nvmlReturn_t nvmlDeviceGetMarginTemperature(void *device, nvmlMarginTemperature_t *out) {
    ENTER(GPU(device));
    if (out->version != 0x1000008) return 2;
    out->margin = (int)get(GPU(device), "temp_margin", 29);
    return 0;
}

nvmlReturn_t nvmlDeviceGetClockInfo(void *device, int which, unsigned *out) {
    ENTER(GPU(device));
    *out = which == 2 ? (unsigned)get(GPU(device), "mem_mhz", 2619) : (unsigned)get(GPU(device), "sm_mhz", 1755);
    return 0;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *out) {
    ENTER(GPU(device));
    (void)which;
    *out = (unsigned)get(GPU(device), "sm_mhz_max", 1980);
    return 0;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(void *device, u64 *out) {
    ENTER(GPU(device));
    *out = get(GPU(device), "reasons", 0);
    return 0;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *out) {
    ENTER(GPU(device));
    *out = get(GPU(device), "reasons", 0);
    return 0;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, u64 *out) {
    ENTER(GPU(device));
    (void)counter;
    *out = get(GPU(device), kind ? "ecc_unc" : "ecc_cor", 0);
    return 0;
}

nvmlReturn_t nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ENTER(GPU(device));
    *current = *pending = (unsigned)get(GPU(device), "mig", 0);
    return 0;
}

nvmlReturn_t nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
    ENTER(GPU(device));
    *current = *pending = (unsigned)get(GPU(device), "ecc_mode", 1);
    return 0;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(void *device, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *bad) {
    ENTER(GPU(device));
    *cor = (unsigned)get(GPU(device), "remap_cor", 0);
    *unc = (unsigned)get(GPU(device), "remap_unc", 0);
    *pending = (unsigned)get(GPU(device), "remap_pending", 0);
    *bad = (unsigned)get(GPU(device), "remap_failed", 0);
    return 0;
}

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType;
    nvmlReturn_t nvmlReturn;
    union { double d; unsigned u; unsigned long ul; u64 ull; long long sll; } value;
} nvmlFieldValue_t;

nvmlReturn_t nvmlDeviceGetFieldValues(void *device, int count, nvmlFieldValue_t *values) {
    int at;
    ENTER(GPU(device));
    for (at = 0; at < count; at++) {
        unsigned id = values[at].fieldId;
        int pages = id >= 29 && id <= 31; /* an H100 remaps rows, it does not retire pages */
        char key[32], error[40];
        snprintf(key, sizeof key, "field_%u", id);
        snprintf(error, sizeof error, "field_%u_error", id);
        if (id == 82) strcpy(key, "temp_mem"), strcpy(error, "temp_mem_error");
        values[at].valueType = id == 82 || id == 186 || pages ? 1 : 3;
        values[at].nvmlReturn = (nvmlReturn_t)get(GPU(device), error, pages ? 3 : 0);
        values[at].value.ull = get(GPU(device), key, id == 82 ? 74 : id == 186 ? 498000 : 0);
        pthread_mutex_lock(&lock);
        if (find(GPU(device), key)) values[at].nvmlReturn = (nvmlReturn_t)number(GPU(device), error, 0);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}
