/* A disk that is watched, and that fails when it is told to: preloaded into a program (LD_PRELOAD).
 *
 * What is done to files below EOSDB_DISK_FOLDER is appended to EOSDB_DISK_LOG, so that a power cut at any
 * instant can be computed afterwards (power.py). A sync fails with EIO while the file EOSDB_DISK_FAIL exists,
 * or by chance, EOSDB_DISK_FAIL_PERCENT times in a hundred. The system takes the pages for clean then, as
 * Linux does; nothing here writes them again.
 *
 * Or one call fails, by number: `disk_fail_at` of a program that is under way (failing.py).
 *
 * A record of the log: kind, token, length of the path, offset, length of the data; the path; the data.
 * Kinds: W write, T truncate, S a sync begins, E it has succeeded, F it has failed, U unlink, R rename,
 * L link (the second path is the data).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
    char kind;
    uint64_t token;
    uint32_t path_length;
    uint64_t offset;
    uint64_t length;
} __attribute__((packed));

static int log_descriptor = -2;
static unsigned int seed;
static __thread int inside;

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static const char *watched_folder(void) { return getenv("EOSDB_DISK_FOLDER"); }

static int is_watched(const char *path) {
    const char *folder = watched_folder();
    return folder && path && !strncmp(path, folder, strlen(folder));
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    char *deleted = strstr(path, " (deleted)");
    if (deleted) return 0;
    return is_watched(path);
}

static void note(char kind, uint64_t token, const char *path, uint64_t offset, const void *data, uint64_t length) {
    if (log_descriptor == -2) {
        const char *name = getenv("EOSDB_DISK_LOG");
        log_descriptor = name ? open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
        const char *given = getenv("EOSDB_DISK_SEED");
        seed = given ? (unsigned int)atoi(given) : (unsigned int)getpid();
    }
    if (log_descriptor < 0) return;
    struct record head = {kind, token, (uint32_t)strlen(path), offset, length};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path_length}, {(void *)data, data ? length : 0}};
    inside = 1;
    if (writev(log_descriptor, parts, 3) < 0) abort();
    inside = 0;
}

/* From the call with this number on, of the kinds in `kinds` (w write, s sync, t truncate, a allocate, o open, r open to write);
 * negative: none. Returns how many calls there were since the last time. */
static long fail_at = -1, calls;
static int fail_error, fail_for_good;
static char fail_kinds[16];

long disk_fail_at(long number, int error, int for_good, const char *kinds) {
    long before = calls;
    fail_at = number, fail_error = error, fail_for_good = for_good, calls = 0;
    snprintf(fail_kinds, sizeof fail_kinds, "%s", kinds);
    return before;
}

static int refused(char kind) {
    if (inside || fail_at < 0 || !strchr(fail_kinds, kind)) return 0;
    long number = __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (fail_for_good ? number < fail_at : number != fail_at) return 0;
    errno = fail_error;
    return 1;
}

static int refused_at(char kind, int descriptor) {
    char path[PATH_MAX];
    if (inside || fail_at < 0 || descriptor == log_descriptor || !path_of(descriptor, path)) return 0;
    return refused(kind);
}

static ssize_t noted_write(int descriptor, const void *data, size_t length, off_t offset) {
    char path[PATH_MAX];
    if (!inside && descriptor != log_descriptor && path_of(descriptor, path))
        note('W', 0, path, (uint64_t)(offset < 0 ? lseek(descriptor, 0, SEEK_CUR) : offset), data, length);
    return 0;
}

ssize_t write(int descriptor, const void *data, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (refused_at('w', descriptor)) return -1;
    noted_write(descriptor, data, length, -1);
    return real(descriptor, data, length);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t offset) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (refused_at('w', descriptor)) return -1;
    noted_write(descriptor, data, length, offset);
    return real(descriptor, data, length, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t offset) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    if (refused_at('w', descriptor)) return -1;
    noted_write(descriptor, data, length, offset);
    return real(descriptor, data, length, offset);
}

int ftruncate(int descriptor, off_t length) {
    REAL(int, "ftruncate", int, off_t);
    char path[PATH_MAX];
    if (refused_at('t', descriptor)) return -1;
    if (path_of(descriptor, path)) note('T', 0, path, (uint64_t)length, NULL, 0);
    return real(descriptor, length);
}

int ftruncate64(int descriptor, off64_t length) {
    REAL(int, "ftruncate64", int, off64_t);
    char path[PATH_MAX];
    if (refused_at('t', descriptor)) return -1;
    if (path_of(descriptor, path)) note('T', 0, path, (uint64_t)length, NULL, 0);
    return real(descriptor, length);
}

static int fails(void) {
    const char *switched = getenv("EOSDB_DISK_FAIL"), *percent = getenv("EOSDB_DISK_FAIL_PERCENT");
    if (switched && !access(switched, F_OK)) return 1;
    return percent && rand_r(&seed) % 100 < atoi(percent);
}

static int noted_sync(int descriptor, int (*real)(int)) {
    static uint64_t newest;
    char path[PATH_MAX];
    if (!path_of(descriptor, path)) return real(descriptor);
    if (refused('s')) return -1;
    uint64_t token = ((uint64_t)getpid() << 32) | __atomic_add_fetch(&newest, 1, __ATOMIC_SEQ_CST);
    note('S', token, path, 0, NULL, 0);
    if (fails()) {
        note('F', token, path, 0, NULL, 0);
        errno = EIO;
        return -1;
    }
    int result = real(descriptor);
    note(result ? 'F' : 'E', token, path, 0, NULL, 0);
    return result;
}

int fsync(int descriptor) {
    REAL(int, "fsync", int);
    return noted_sync(descriptor, real);
}

int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    return noted_sync(descriptor, real);
}

int posix_fallocate(int descriptor, off_t offset, off_t length) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return refused_at('a', descriptor) ? fail_error : real(descriptor, offset, length);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    return refused_at('a', descriptor) ? fail_error : real(descriptor, offset, length);
}

int open(const char *path, int flags, ...) {
    REAL(int, "open", const char *, int, ...);
    va_list given;
    va_start(given, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, mode_t) : 0;
    va_end(given);
    return is_watched(path) && (refused('o') || (flags & O_ACCMODE && refused('r'))) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    va_list given;
    va_start(given, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, mode_t) : 0;
    va_end(given);
    return is_watched(path) && (refused('o') || (flags & O_ACCMODE && refused('r'))) ? -1 : real(path, flags, mode);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (is_watched(path)) note('U', 0, path, 0, NULL, 0);
    return real(path);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (is_watched(from)) note('R', 0, from, 0, to, strlen(to));
    return real(from, to);
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    if (is_watched(from)) note('L', 0, from, 0, to, strlen(to));
    return real(from, to);
}
