/* A disk that fails on request: preloaded into a process, lets the n-th operation on some files fail.
 *
 * Operations are what changes files or brings them to the disk: writes, truncations, flushes, renames, new folders.
 * Files are those whose path begins with a prefix. Called by ctypes: `arm` before the work, `operations` after it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char prefix[PATH_MAX];
static atomic_int count, failing, lasting;

/* The operation of this number fails, from 1 on (0: none); lasting: so do all later ones that need room. */
void arm(const char *files, int number, int from_then_on) {
    snprintf(prefix, sizeof prefix, "%s", files);
    count = 0, failing = number, lasting = from_then_on;
}

int operations(void) { return count; }

static int is_watched(const char *path) { return prefix[0] && strncmp(path, prefix, strlen(prefix)) == 0; }

/* Whether an operation on this path is to fail; one that needs no room does so only by its own number. */
static int fails(const char *path, int needs_room, int why) {
    if (!is_watched(path)) return 0;
    int own = ++count;
    if (failing == 0 || own < failing || (own > failing && !(lasting && needs_room))) return 0;
    errno = why;
    return 1;
}

static int fails_in(int file, int needs_room, int why) {
    char link[64], path[PATH_MAX];
    if (!prefix[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return fails(path, needs_room, why);
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

ssize_t write(int file, const void *data, size_t n) {
    return fails_in(file, 1, ENOSPC) ? -1 : REAL("write", ssize_t(*)(int, const void *, size_t))(file, data, n);
}

ssize_t pwrite(int file, const void *data, size_t n, off_t at) {
    if (fails_in(file, 1, ENOSPC)) return -1;
    return REAL("pwrite", ssize_t(*)(int, const void *, size_t, off_t))(file, data, n, at);
}

ssize_t pwrite64(int file, const void *data, size_t n, off64_t at) {
    if (fails_in(file, 1, ENOSPC)) return -1;
    return REAL("pwrite64", ssize_t(*)(int, const void *, size_t, off64_t))(file, data, n, at);
}

int ftruncate(int file, off_t n) {
    return fails_in(file, 1, ENOSPC) ? -1 : REAL("ftruncate", int (*)(int, off_t))(file, n);
}

int ftruncate64(int file, off64_t n) {
    return fails_in(file, 1, ENOSPC) ? -1 : REAL("ftruncate64", int (*)(int, off64_t))(file, n);
}

int fsync(int file) { return fails_in(file, 1, EIO) ? -1 : REAL("fsync", int (*)(int))(file); }

int fdatasync(int file) { return fails_in(file, 1, EIO) ? -1 : REAL("fdatasync", int (*)(int))(file); }

int rename(const char *from, const char *to) {
    return fails(from, 0, EIO) ? -1 : REAL("rename", int (*)(const char *, const char *))(from, to);
}

int mkdir(const char *path, mode_t mode) {
    return fails(path, 0, ENOSPC) ? -1 : REAL("mkdir", int (*)(const char *, mode_t))(path, mode);
}
