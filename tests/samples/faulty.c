/*
 * Makes reads of files and listings of directories fail as drivers make them fail; loaded by LD_PRELOAD.
 * CLUSTERTOP_TEST_FAULTS names a file of lines "<errno number> <end of a path>", read at each call.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fault_of(const char *path) {
    const char *name = getenv("CLUSTERTOP_TEST_FAULTS");
    FILE *file = name ? fopen(name, "r") : NULL;
    char end[512];
    int code, found = 0;
    if (!file) return 0;
    while (!found && fscanf(file, "%d %511s", &code, end) == 2) {
        size_t size = strlen(end), all = strlen(path);
        if (all >= size && !strcmp(path + all - size, end)) found = code;
    }
    fclose(file);
    return found;
}

static int fault_of_open(int fd) {
    char link[64], path[4096];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fault_of(path);
}

#define REAL(type, name) static type real; if (!real) real = (type) dlsym(RTLD_NEXT, name)

typedef ssize_t (*read_t)(int, void *, size_t);
ssize_t read(int fd, void *data, size_t size) {
    REAL(read_t, "read");
    int code = fd > 2 ? fault_of_open(fd) : 0;
    if (code) { errno = code; return -1; }
    return real(fd, data, size);
}

typedef ssize_t (*pread_t)(int, void *, size_t, off_t);
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    REAL(pread_t, "pread");
    int code = fault_of_open(fd);
    if (code) { errno = code; return -1; }
    return real(fd, data, size, at);
}

ssize_t pread64(int fd, void *data, size_t size, off_t at) { return pread(fd, data, size, at); }

typedef DIR *(*opendir_t)(const char *);
DIR *opendir(const char *path) {
    REAL(opendir_t, "opendir");
    int code = fault_of(path);
    if (code) { errno = code; return NULL; }
    return real(path);
}
