/* A disk that is watched, and that fails when it is told to, with a few other things that programs rely on:
 * preloaded into a program (LD_PRELOAD).
 *
 * What is done to files below EOSDB_DISK_FOLDER is appended to EOSDB_DISK_LOG, so that a power cut at any
 * instant can be computed afterwards (power.py). A sync fails with EIO by chance, EOSDB_DISK_FAIL_PERCENT
 * times in a hundred. The system takes the pages for clean then, as Linux does; nothing here writes them again.
 *
 * Calls fail by number, one or all from it on: those of a program that is under way at its own word
 * (`disk_fail_at`), or at that of another program, which writes it into the file EOSDB_DISK_ORDERS for all
 * programs of the role EOSDB_DISK_ROLE (orders.py). There the wall clock of a role is set forward or back, too;
 * the monotonic clock is not.
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
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
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
static __thread int inside __attribute__((tls_model("initial-exec")));

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static const char *watched_folder(void) { return getenv("EOSDB_DISK_FOLDER"); }

static int is_watched(const char *path) {
    const char *folder = watched_folder();
    if (!folder || !path || strncmp(path, folder, strlen(folder))) return 0;
    size_t length = strlen(path); /* What the judge believes does not fail (tests/trials/hunts). */
    return !strstr(path, "/ledger.") && (length < 4 || strcmp(path + length - 4, ".log"));
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

/* From the call with the number `at` on, of the kinds in `kinds` (w write, s sync, t truncate, a allocate, n name:
 * rename or link, o open, r open to write; of any program p thread, i inotify instance, m memory, q SQLite's): it fails with `error`,
 * for good or once. `armed` is written last. `calls` were counted since, and `failed` of them have failed.
 * `met` counts calls that the system itself has refused for want of memory or descriptors, looks at a wall
 * clock that is wrong, and syncs that took `slow_ms` longer. orders.py has the same layout. */
struct order {
    char role[16], kinds[16];
    int64_t at, calls, failed, ahead_ms, slow_ms;
    int32_t error, for_good, armed, met;
};
enum { ROLES = 16 };
static struct order own, *order = &own;

__attribute__((constructor)) static void take_orders(void) {
    const char *name = getenv("EOSDB_DISK_ORDERS"), *role = getenv("EOSDB_DISK_ROLE");
    if (!name || !role) return;
    int descriptor = open(name, O_RDWR | O_CLOEXEC);
    struct order *all = mmap(NULL, ROLES * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (descriptor < 0 || all == MAP_FAILED) {
        fprintf(stderr, "disk.c: EOSDB_DISK_ORDERS %s cannot be read: %s\n", name, strerror(errno));
        abort();
    }
    close(descriptor);
    for (int i = 0; i < ROLES; i++)
        if (!strncmp(all[i].role, role, sizeof all[i].role)) order = &all[i];
    if (order == &own) {
        fprintf(stderr, "disk.c: EOSDB_DISK_ROLE %s is none of the roles in %s\n", role, name);
        abort();
    }
}

static void met(int is_met) {
    if (is_met) __atomic_fetch_add(&order->met, 1, __ATOMIC_SEQ_CST);
}

static int known(int descriptor) {
    met(descriptor < 0 && errno == EMFILE);
    return descriptor;
}

/* For this program, or for all of its role; a negative number: none. Returns how many calls there were since the last time. */
long disk_fail_at(long number, int error, int for_good, const char *kinds) {
    long before = order->calls;
    order->armed = 0;
    snprintf(order->kinds, sizeof order->kinds, "%s", kinds);
    order->at = number, order->error = error, order->for_good = for_good, order->calls = order->failed = 0;
    __atomic_store_n(&order->armed, number >= 0, __ATOMIC_SEQ_CST);
    return before;
}

static int refused(char kind) {
    if (inside || !__atomic_load_n(&order->armed, __ATOMIC_SEQ_CST) || !strchr(order->kinds, kind)) return 0;
    int64_t number = __atomic_fetch_add(&order->calls, 1, __ATOMIC_SEQ_CST);
    if (order->for_good ? number < order->at : number != order->at) return 0;
    __atomic_fetch_add(&order->failed, 1, __ATOMIC_SEQ_CST);
    errno = order->error;
    return 1;
}

static int refused_at(char kind, int descriptor) {
    char path[PATH_MAX];
    if (inside || !order->armed || descriptor == log_descriptor || !path_of(descriptor, path)) return 0;
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
    if (refused('s')) return 1;
    const char *percent = getenv("EOSDB_DISK_FAIL_PERCENT");
    errno = EIO;
    return percent && rand_r(&seed) % 100 < atoi(percent);
}

static int noted_sync(int descriptor, int (*real)(int)) {
    static uint64_t newest;
    char path[PATH_MAX];
    if (!path_of(descriptor, path)) return real(descriptor);
    uint64_t token = ((uint64_t)getpid() << 32) | __atomic_add_fetch(&newest, 1, __ATOMIC_SEQ_CST);
    note('S', token, path, 0, NULL, 0);
    if (order->slow_ms) {
        met(1);
        usleep(order->slow_ms * 1000);
    }
    if (fails()) {
        int error = errno;
        note('F', token, path, 0, NULL, 0);
        errno = error;
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
    return refused_at('a', descriptor) ? order->error : real(descriptor, offset, length);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    return refused_at('a', descriptor) ? order->error : real(descriptor, offset, length);
}

int open(const char *path, int flags, ...) {
    REAL(int, "open", const char *, int, ...);
    va_list given;
    va_start(given, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, mode_t) : 0;
    va_end(given);
    return is_watched(path) && (refused('o') || (flags & O_ACCMODE && refused('r'))) ? -1 : known(real(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    va_list given;
    va_start(given, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(given, mode_t) : 0;
    va_end(given);
    return is_watched(path) && (refused('o') || (flags & O_ACCMODE && refused('r'))) ? -1 : known(real(path, flags, mode));
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    if (is_watched(path)) note('U', 0, path, 0, NULL, 0);
    return real(path);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    if (is_watched(from) && refused('n')) return -1;
    if (is_watched(from)) note('R', 0, from, 0, to, strlen(to));
    return real(from, to);
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    if (is_watched(from) && refused('n')) return -1;
    if (is_watched(from)) note('L', 0, from, 0, to, strlen(to));
    return real(from, to);
}

/* Copies within the kernel are writes, too; the log of a power cut does not have them. */
ssize_t sendfile64(int to, int from, off64_t *offset, size_t count) {
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    return refused_at('w', to) ? -1 : real(to, from, offset, count);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count) { return sendfile64(to, from, offset, count); }

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *offset, size_t count, unsigned int flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned int);
    return refused_at('w', to) ? -1 : real(from, at, to, offset, count, flags);
}

int inotify_init1(int flags) {
    REAL(int, "inotify_init1", int);
    return refused('i') ? -1 : real(flags);
}

int inotify_init(void) { return inotify_init1(0); }

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument) {
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return refused('p') ? order->error : real(thread, attributes, function, argument);
}

/* Where errno is ENOMEM; small objects of Python's are among them with PYTHONMALLOC=malloc. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static int refused_memory(void *caller) {
    if (inside || !order->armed || (!strchr(order->kinds, 'm') && !strchr(order->kinds, 'q'))) return 0;
    Dl_info place;
    inside = 1;
    int is_sqlites = dladdr(caller, &place) && strstr(place.dli_fname, "sqlite3");
    inside = 0;
    return refused('m') || (is_sqlites && refused('q'));
}

static void *had(void *memory, size_t size) {
    met(!memory && size);
    return memory;
}

void *malloc(size_t size) {
    return refused_memory(__builtin_return_address(0)) ? NULL : had(__libc_malloc(size), size);
}

void *calloc(size_t count, size_t size) {
    return refused_memory(__builtin_return_address(0)) ? NULL : had(__libc_calloc(count, size), count * size);
}

void *realloc(void *given, size_t size) {
    return refused_memory(__builtin_return_address(0)) ? NULL : had(__libc_realloc(given, size), size);
}

/* Of Python's own allocator, and of threads. */
void *mmap(void *at, size_t length, int protection, int flags, int descriptor, off_t offset) {
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    void *memory = real(at, length, protection, flags, descriptor, offset);
    met(memory == MAP_FAILED && errno == ENOMEM);
    return memory;
}

int socket(int domain, int type, int protocol) {
    REAL(int, "socket", int, int, int);
    return known(real(domain, type, protocol));
}

int accept4(int listener, struct sockaddr *restrict address, socklen_t *restrict length, int flags) {
    REAL(int, "accept4", int, struct sockaddr *restrict, socklen_t *restrict, int);
    return known(real(listener, address, length, flags));
}

/* The wall clock. Who waits until a time of it is given the time that the kernel means by it. */
static struct timespec moved(struct timespec given, int64_t by_ms) {
    int64_t nanoseconds = given.tv_nsec + by_ms % 1000 * 1000000;
    given.tv_sec += by_ms / 1000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
    given.tv_nsec = (nanoseconds + 1000000000) % 1000000000;
    return given;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        met(order->ahead_ms != 0);
        *now = moved(*now, order->ahead_ms);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

int timespec_get(struct timespec *now, int base) { return clock_gettime(CLOCK_REALTIME, now) ? 0 : base; }

/* A condition may be of the monotonic clock, which is younger than thirty years. */
static struct timespec waited_for(const struct timespec *until) {
    return until->tv_sec < 1000000000 ? *until : moved(*until, -order->ahead_ms);
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* x86-64 has an older one by the same name. */
    if (!real) *(void **)&real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec given = waited_for(until);
    return real(condition, mutex, &given);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    REAL(int, "sem_timedwait", sem_t *, const struct timespec *);
    struct timespec given = waited_for(until);
    return real(semaphore, &given);
}
