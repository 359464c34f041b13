/* What a machine may do to a site, without privileges: LD_PRELOADed into its processes.
 *
 * A full disk (writes fail with ENOSPC), a slow one (syncs take longer), a clock that jumps, and
 * the record of what was synced, which `power.py` rolls files back to. All of it concerns files
 * below FAULTS_ROOT only (the clock: everything), and is switched by int64 words in FAULTS_CONTROL,
 * which all processes have mapped: nothing is asked of the kernel while every switch is off.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ENOSPC_ON, SYNC_MS, CLOCK_NS, RECORD, WORDS };

static volatile int64_t off[WORDS];
static volatile int64_t *control = off;
static const char *root, *shadow, *lie;
static size_t root_len;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_CONTROL");
    root = getenv("FAULTS_ROOT");
    shadow = getenv("FAULTS_SHADOW");
    lie = getenv("FAULTS_LIE"); /* syncs of files with this in their path are not recorded */
    if (!path || !root || !shadow) return;
    root_len = strlen(root);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof off, PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (map != MAP_FAILED) control = map;
}

static int below(const char *path) {
    return path && strncmp(path, root, root_len) == 0 && path[root_len] == '/';
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return 1;
}

static int ours(int fd) {
    char path[PATH_MAX];
    return path_of(fd, path) && below(path);
}

static int full(int fd) { return control[ENOSPC_ON] && ours(fd); }

static long no_space(void) {
    errno = ENOSPC;
    return -1;
}

/* ---- the disk is full ---- */

ssize_t write(int fd, const void *data, size_t n) {
    return full(fd) ? no_space() : syscall(SYS_write, fd, data, n);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return full(fd) ? no_space() : syscall(SYS_pwrite64, fd, data, n, at);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return pwrite64(fd, data, n, at); }

ssize_t writev(int fd, const struct iovec *parts, int n) {
    return full(fd) ? no_space() : syscall(SYS_writev, fd, parts, n);
}

int ftruncate64(int fd, off64_t size) {
    struct stat now;
    if (control[ENOSPC_ON] && fstat(fd, &now) == 0 && size > now.st_size && ours(fd))
        return (int)no_space();
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int posix_fallocate64(int fd, off64_t at, off64_t n) {
    return full(fd) ? ENOSPC : REAL(posix_fallocate64)(fd, at, n);
}

int posix_fallocate(int fd, off_t at, off_t n) { return posix_fallocate64(fd, at, n); }

size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    if (full(fileno(file))) {
        no_space();
        return 0;
    }
    return REAL(fwrite)(data, size, n, file);
}

/* ---- what was synced ---- */

static void name_of(char *name, char kind, ino_t inode, const char *more) {
    snprintf(name, PATH_MAX, "%s/%c-%lu%s", shadow, kind, (unsigned long)inode, more);
}

/* A new file has no synced content, whatever its inode number held before. */
static void forget(int fd) {
    struct stat now;
    char name[PATH_MAX];
    if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode)) return;
    name_of(name, 'i', now.st_ino, "");
    unlink(name);
}

static int copy(const char *from, const char *to, const struct stat *now) {
    int in = (int)syscall(SYS_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC, 0);
    if (in < 0) return 0;
    int out = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = out < 0 ? -1 : 1;
    while (n > 0) n = syscall(SYS_sendfile, out, in, NULL, (size_t)1 << 30);
    struct timespec times[2] = {now->st_atim, now->st_mtim};
    if (out >= 0) futimens(out, times);
    syscall(SYS_close, in);
    if (out >= 0) syscall(SYS_close, out);
    return n == 0;
}

static void keep_file(int fd, const struct stat *now) {
    char from[64], fresh[PATH_MAX], name[PATH_MAX], more[32];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    snprintf(more, sizeof more, ".%ld", (long)syscall(SYS_gettid));
    name_of(fresh, 'i', now->st_ino, more);
    name_of(name, 'i', now->st_ino, "");
    if (copy(from, fresh, now)) REAL(rename)(fresh, name);
}

/* Lines "inode name" for what the folder holds now. */
static void keep_folder(const char *path, const struct stat *now) {
    char fresh[PATH_MAX], name[PATH_MAX], more[32], line[PATH_MAX];
    snprintf(more, sizeof more, ".%ld", (long)syscall(SYS_gettid));
    name_of(fresh, 'd', now->st_ino, more);
    name_of(name, 'd', now->st_ino, "");
    DIR *folder = opendir(path);
    int out = (int)syscall(SYS_openat, AT_FDCWD, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct dirent *entry;
    while (folder && out >= 0 && (entry = readdir(folder))) {
        int n = snprintf(line, sizeof line, "%lu %s\n", (unsigned long)entry->d_ino, entry->d_name);
        syscall(SYS_write, out, line, (size_t)n);
    }
    if (out >= 0) syscall(SYS_close, out);
    if (folder) {
        closedir(folder);
        REAL(rename)(fresh, name);
    }
}

static void keep(int fd) {
    struct stat now;
    char path[PATH_MAX];
    if (!control[RECORD] || !path_of(fd, path) || fstat(fd, &now) != 0) return;
    if (strncmp(path, root, root_len) != 0 || (lie && strstr(path, lie))) return;
    if (S_ISDIR(now.st_mode)) keep_folder(path, &now);
    if (S_ISREG(now.st_mode)) keep_file(fd, &now);
}

static int synced(int fd, int result) {
    int64_t ms = control[SYNC_MS];
    if (ms && ours(fd)) {
        struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
    }
    if (result == 0) keep(fd);
    return result;
}

/* A full disk is told at the sync of what could not be allocated before. */
int fsync(int fd) { return full(fd) ? (int)no_space() : synced(fd, (int)syscall(SYS_fsync, fd)); }

int fdatasync(int fd) {
    return full(fd) ? (int)no_space() : synced(fd, (int)syscall(SYS_fdatasync, fd));
}

/* ---- opening ---- */

static int open_any(int folder, const char *path, int flags, mode_t mode) {
    if (!(flags & O_CREAT) || !(control[ENOSPC_ON] || control[RECORD]))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    int there = faccessat(folder, path, F_OK, 0) == 0;
    if (!there && control[ENOSPC_ON] && below(path)) return (int)no_space();
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && !there && control[RECORD] && ours(fd)) forget(fd);
    return fd;
}

#define MODE(mode)                                                          \
    mode_t mode = 0;                                                        \
    if (flags & (O_CREAT | O_TMPFILE)) {                                    \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode = va_arg(more, mode_t);                                        \
        va_end(more);                                                       \
    }

int open(const char *path, int flags, ...) {
    MODE(mode)
    return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(mode)
    return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(mode)
    return open_any(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(mode)
    return open_any(at, path, flags | O_LARGEFILE, mode);
}

static FILE *fopen_any(FILE *(*open_it)(const char *, const char *), const char *path, const char *mode) {
    int writes = mode[0] != 'r';
    if (writes && control[ENOSPC_ON] && below(path)) {
        no_space();
        return NULL;
    }
    int there = !writes || !control[RECORD] || access(path, F_OK) == 0;
    FILE *file = open_it(path, mode);
    if (file && !there && below(path)) forget(fileno(file));
    return file;
}

FILE *fopen(const char *path, const char *mode) { return fopen_any(REAL(fopen), path, mode); }
FILE *fopen64(const char *path, const char *mode) { return fopen_any(REAL(fopen64), path, mode); }

/* ---- what is started from here ---- */

static char *const ours_too[] = {
    "LD_PRELOAD", "FAULTS_CONTROL", "FAULTS_ROOT", "FAULTS_SHADOW", "FAULTS_LIE", NULL};

/* The site starts Mosquitto with an environment of its own making; the shim goes along. */
int execve(const char *path, char *const arguments[], char *const environment[]) {
    enum { MOST = 1000 };
    char *told[MOST + 8], text[8][PATH_MAX];
    int n = 0;
    while (environment && environment[n] && n < MOST) {
        told[n] = environment[n];
        n++;
    }
    for (int i = 0; ours_too[i]; i++) {
        size_t length = strlen(ours_too[i]);
        const char *value = getenv(ours_too[i]);
        for (int k = 0; value && k < n; k++)
            if (strncmp(told[k], ours_too[i], length) == 0 && told[k][length] == '=') value = NULL;
        if (!value) continue;
        snprintf(text[i], PATH_MAX, "%s=%s", ours_too[i], value);
        told[n++] = text[i];
    }
    told[n] = NULL;
    return REAL(execve)(path, arguments, told);
}

/* ---- the clock ---- */

static int is_wall(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*ask)(clockid_t, struct timespec *);
    if (!ask) ask = REAL(clock_gettime);
    int result = ask(id, at);
    int64_t shift = is_wall(id) ? control[CLOCK_NS] : 0;
    if (result == 0 && shift) {
        int64_t ns = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + shift;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* What is written behind a jump carries the new time in reality; here the kernel's clock
 * stays. Not for files elsewhere: Python would compile all of its modules anew. */
static void shift_times(struct stat *found) {
    int64_t seconds = control[CLOCK_NS] / 1000000000;
    found->st_mtim.tv_sec += seconds;
    found->st_ctim.tv_sec += seconds;
}

int stat(const char *path, struct stat *found) {
    int result = REAL(stat)(path, found);
    if (result == 0 && control[CLOCK_NS] && below(path)) shift_times(found);
    return result;
}

int fstatat(int at, const char *path, struct stat *found, int flags) {
    int result = REAL(fstatat)(at, path, found, flags);
    if (result == 0 && control[CLOCK_NS] && below(path)) shift_times(found);
    return result;
}

/* On 64 bits these are the same (the build refuses others). */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64) && sizeof(long) == 8, "64 bits");
int stat64(const char *path, struct stat64 *found) { return stat(path, (struct stat *)found); }
int fstatat64(int at, const char *path, struct stat64 *found, int flags) {
    return fstatat(at, path, (struct stat *)found, flags);
}
