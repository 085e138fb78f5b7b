/* Calls by libc's syscall(): Node.js, and whoever wants a call that libc has no function for. */
#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <linux/openat2.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static char buffer[4096];

/* What a call has given: its result, or its errno. */
static void tell(const char *what, long result)
{
    if (result < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else
        printf("%s: %ld\n", what, result);
}

static void put(int fd, const char *text)
{
    HOLDS(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void contents(const char *name)
{
    char text[64];
    long fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        tell(name, fd);
        return;
    }
    ssize_t got = read((int)fd, text, sizeof text - 1);
    text[got < 0 ? 0 : got] = 0;
    printf("%s holds \"%s\"\n", name, text);
    close((int)fd);
}

static void about(const char *name)
{
    struct stat a;
    struct statx x;
    long there = syscall(SYS_newfstatat, AT_FDCWD, name, &a, AT_SYMLINK_NOFOLLOW);
    if (there < 0) {
        tell(name, there);
        return;
    }
    HOLDS(syscall(SYS_statx, AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &x) == 0);
    HOLDS(x.stx_ino == a.st_ino && x.stx_size == (uint64_t)a.st_size && x.stx_mode == a.st_mode);
    printf("%s: mode %o, size %ld\n", name, a.st_mode, S_ISDIR(a.st_mode) ? 0 : (long)a.st_size);
}

static void names(void)
{
    int here = open(".", O_RDONLY | O_DIRECTORY);
    HOLDS(here >= 0);
    tell("mkdirat", syscall(SYS_mkdirat, here, "dir", 0750));
    put((int)syscall(SYS_openat, here, "dir/a", O_CREAT | O_EXCL | O_WRONLY, 0640), "one");
    tell("again", syscall(SYS_openat, here, "dir/a", O_CREAT | O_EXCL | O_WRONLY, 0640));
    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 0600};
    put((int)syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, sizeof how), "two");
    how.flags |= 1ull << 40;
    tell("unknown flags", syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, sizeof how));
    how.flags = O_RDONLY;
    tell("a mode, and nothing made", syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, sizeof how));
    how = (struct open_how){.flags = O_PATH | O_APPEND};
    tell("no flags for a path", syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, sizeof how));
    how = (struct open_how){.resolve = 1 << 30};
    tell("unknown bounds", syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, sizeof how));
    struct { struct open_how how; uint64_t later; } longer = {.how = {.flags = O_RDONLY | O_LARGEFILE}};
    HOLDS(close((int)syscall(SYS_openat2, AT_FDCWD, "dir/b", &longer, sizeof longer)) == 0);
    longer.later = 1;
    tell("an unknown field", syscall(SYS_openat2, AT_FDCWD, "dir/b", &longer, sizeof longer));
    tell("too short", syscall(SYS_openat2, AT_FDCWD, "dir/b", &how, 8));
    tell("no path", syscall(SYS_openat, AT_FDCWD, NULL, O_RDONLY));
    contents("dir/a");
    contents("dir/b");
    contents("given");
    about("dir");
    about("dir/a");
    about("given");
    about("dir/none");
    tell("faccessat", syscall(SYS_faccessat, here, "dir/a", R_OK));
    tell("faccessat2", syscall(SYS_faccessat2, here, "dir/none", R_OK, AT_EACCESS));
    tell("linkat", syscall(SYS_linkat, here, "dir/a", here, "dir/c", 0));
    tell("symlinkat", syscall(SYS_symlinkat, "dir/c", here, "link"));
    memset(buffer, 0, sizeof buffer);
    tell("readlinkat", syscall(SYS_readlinkat, here, "link", buffer, sizeof buffer));
    puts(buffer);
    tell("renameat2", syscall(SYS_renameat2, here, "dir/b", here, "dir/c", RENAME_NOREPLACE));
    tell("exchange", syscall(SYS_renameat2, here, "dir/b", here, "dir/c", RENAME_EXCHANGE));
    contents("dir/b");
    contents("link");
    tell("renameat", syscall(SYS_renameat, here, "dir/c", here, "d"));
    tell("unlinkat", syscall(SYS_unlinkat, here, "dir/b", 0));
    tell("not empty", syscall(SYS_unlinkat, here, "dir", AT_REMOVEDIR));
    tell("mknodat", syscall(SYS_mknodat, here, "fifo", S_IFIFO | 0600, 0));
    about("fifo");
    HOLDS(close(here) == 0);
}

static void attributes(void)
{
    struct statfs fs;
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    struct stat a;
    tell("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "d", 0604));
    tell("fchownat", syscall(SYS_fchownat, AT_FDCWD, "d", geteuid(), getegid(), 0));
    tell("utimensat", syscall(SYS_utimensat, AT_FDCWD, "d", times, 0));
    HOLDS(stat("d", &a) == 0 && a.st_mtime == 2000);
    tell("truncate", syscall(SYS_truncate, "d", 2));
    contents("d");
    tell("statfs", syscall(SYS_statfs, "d", &fs));
    HOLDS(fs.f_bsize > 0);
    tell("setxattr", syscall(SYS_setxattr, "d", "user.colour", "red", 3, 0));
    tell("getxattr", syscall(SYS_getxattr, "d", "user.colour", buffer, sizeof buffer));
    tell("listxattr", syscall(SYS_listxattr, "d", buffer, sizeof buffer));
    tell("removexattr", syscall(SYS_removexattr, "d", "user.colour"));
    long fd = syscall(SYS_openat, AT_FDCWD, "d", O_RDWR);
    HOLDS(fd >= 0);
    tell("fsync", syscall(SYS_fsync, fd));
    tell("fdatasync", syscall(SYS_fdatasync, fd));
    tell("syncfs", syscall(SYS_syncfs, fd));
    HOLDS(close((int)fd) == 0);
}

static void directories(void)
{
    tell("chdir", syscall(SYS_chdir, "dir"));
    contents("a");
    long length = syscall(SYS_getcwd, buffer, sizeof buffer);
    HOLDS(length == (long)strlen(buffer) + 1);
    printf("in %s\n", strrchr(buffer, '/'));
    tell("no room", syscall(SYS_getcwd, buffer, 2));
    HOLDS(chdir("..") == 0);
    tell("umask", syscall(SYS_umask, 027));
    put((int)syscall(SYS_openat, AT_FDCWD, "masked", O_CREAT | O_WRONLY, 0666), "m");
    about("masked");
    umask(0);
}

/* Opens a directory outside the buffer, and makes the library see that it is. */
static int outside(void)
{
    struct stat a;
    int fd = open("/usr", O_RDONLY | O_DIRECTORY);
    HOLDS(fd >= 0 && fstatat(fd, "bin", &a, 0) == 0);
    return fd;
}

static void made_in(int dirfd, const char *name)
{
    put(openat(dirfd, name, O_CREAT | O_WRONLY, 0600), name);
    contents(name);
}

/* A number that was that of a directory outside becomes that of one in the buffer. */
static void numbers(void)
{
    HOLDS(chdir("dir") == 0);
    int here = open(".", O_RDONLY | O_DIRECTORY), fd = outside();
    HOLDS(syscall(SYS_dup3, here, fd, 0) == fd);
    made_in(fd, "dup3");
    HOLDS(close(fd) == 0);
#ifdef SYS_dup2
    fd = outside();
    HOLDS(syscall(SYS_dup2, here, fd) == fd);
    made_in(fd, "dup2");
    HOLDS(close(fd) == 0);
#endif
    fd = outside();
    HOLDS(syscall(SYS_close, fd) == 0 && dup(here) == fd);
    made_in(fd, "close");
    HOLDS(close(fd) == 0);
    fd = outside();
    HOLDS(syscall(SYS_close_range, fd, fd, 0) == 0 && fcntl(here, F_DUPFD, fd) == fd);
    made_in(fd, "close_range");
    HOLDS(close(fd) == 0 && close(here) == 0 && chdir("..") == 0);
}

/* Outside the buffer all is as natively. */
static void bounds(void)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY, .resolve = RESOLVE_BENEATH};
    int usr = open("/usr", O_RDONLY | O_DIRECTORY);
    int fd = (int)syscall(SYS_openat2, usr, "bin", &how, sizeof how);
    HOLDS(fd >= 0 && close(fd) == 0);
    HOLDS(syscall(SYS_openat2, usr, "../bin", &how, sizeof how) == -1 && errno == EXDEV);
    HOLDS(close(usr) == 0);
}

/* The own links of /proc, also where another link leads to them. */
static void own_links(void)
{
    static char link[64], place[4096];
    HOLDS(chdir("dir") == 0 && getcwd(buffer, sizeof buffer) && symlink("/proc/self/cwd/led", "../lead") == 0);
    HOLDS(symlink("/proc/self/cwd/led to", "../raw lead") == 0);
    put(open("../lead", O_CREAT | O_WRONLY, 0600), "through a link");
    contents("led");
    put((int)syscall(SYS_openat, AT_FDCWD, "../raw lead", O_CREAT | O_WRONLY, 0600), "through another");
    contents("led to");
    memset(place, 0, sizeof place);
    HOLDS(syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", place, sizeof place) > 0);
    HOLDS(strcmp(place, buffer) == 0);
#ifdef SYS_readlink
    memset(place, 0, sizeof place);
    HOLDS(syscall(SYS_readlink, "/proc/self/cwd", place, sizeof place) > 0);
    HOLDS(strcmp(place, buffer) == 0);
#endif
    const char *named[] = {"led", "second", "third"};
    HOLDS(linkat(AT_FDCWD, "led", AT_FDCWD, "second", 0) == 0);
    HOLDS(linkat(AT_FDCWD, "led", AT_FDCWD, "third", 0) == 0);
    for (int i = 0; i < 3; i++) {
        int fd = open(named[i], O_RDONLY);
        HOLDS(fd >= 0);
        for (int by_dev = 0; by_dev < 2; by_dev++) {
            sprintf(link, by_dev ? "/dev/fd/%d" : "/proc/self/fd/%d", fd);
            memset(place, 0, sizeof place);
            HOLDS(readlink(link, place, sizeof place) > 0);
            printf("%s is %s\n", named[i], strrchr(place, '/'));
            HOLDS(strncmp(place, buffer, strlen(buffer)) == 0);
            HOLDS(realpath(link, place) && strncmp(place, buffer, strlen(buffer)) == 0);
            printf("really %s\n", strrchr(place, '/'));
        }
        HOLDS(close(fd) == 0);
    }
    HOLDS(chdir("..") == 0);
}

static void same(const char *name, int fd)
{
    struct stat by_path, by_fd;
    struct statx x;
    HOLDS(stat(name, &by_path) == 0);
    HOLDS(fstat(fd, &by_fd) == 0 && by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino);
    HOLDS(syscall(SYS_fstat, fd, &by_fd) == 0);
    HOLDS(by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino);
    HOLDS(syscall(SYS_newfstatat, fd, "", &by_fd, AT_EMPTY_PATH) == 0);
    HOLDS(by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino);
    HOLDS(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) == 0);
    HOLDS(x.stx_ino == by_path.st_ino);
    /* Since Linux 6.11. */
    if (syscall(SYS_newfstatat, fd, NULL, &by_fd, AT_EMPTY_PATH) == 0)
        HOLDS(by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino);
    if (syscall(SYS_statx, fd, NULL, AT_EMPTY_PATH, STATX_BASIC_STATS, &x) == 0)
        HOLDS(x.stx_ino == by_path.st_ino);
}

/* What is asked of a descriptor. */
static void open_files(void)
{
    static char names[4096];
    int file = open("dir/a", O_RDWR), directory = open("dir", O_RDONLY | O_DIRECTORY);
    HOLDS(file >= 0 && directory >= 0);
    same("dir/a", file);
    same("dir", directory);
    tell("fsetxattr", syscall(SYS_fsetxattr, file, "user.colour", "blue", 4, 0));
    tell("fgetxattr", syscall(SYS_fgetxattr, file, "user.colour", names, sizeof names));
    tell("flistxattr", syscall(SYS_flistxattr, file, names, sizeof names));
    tell("fremovexattr", syscall(SYS_fremovexattr, file, "user.colour"));
    tell("flistxattr", syscall(SYS_flistxattr, file, names, sizeof names));
    /* What the buffer refuses by a path it refuses by a descriptor. */
    struct { struct file_handle handle; char room[128]; } h;
    const char *paths[] = {"dir/a", "dir"};
    const int fds[] = {file, directory};
    for (int i = 0; i < 2; i++) {
        int mount, errors[2];
        h.handle.handle_bytes = sizeof h.room;
        errors[0] = syscall(SYS_name_to_handle_at, AT_FDCWD, paths[i], &h, &mount, 0) ? errno : 0;
        h.handle.handle_bytes = sizeof h.room;
        errors[1] = syscall(SYS_name_to_handle_at, fds[i], "", &h, &mount, AT_EMPTY_PATH) ? errno : 0;
        HOLDS(errors[0] == errors[1]);
        int watch = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_CLOEXEC, O_RDONLY);
        if (watch >= 0) {
            errors[0] = syscall(SYS_fanotify_mark, watch, FAN_MARK_ADD, (uint64_t)FAN_MODIFY, AT_FDCWD, paths[i]) ? errno : 0;
            errors[1] = syscall(SYS_fanotify_mark, watch, FAN_MARK_ADD, (uint64_t)FAN_MODIFY, fds[i], NULL) ? errno : 0;
            HOLDS(errors[0] == errors[1] && close(watch) == 0);
        }
    }
    HOLDS(close(file) == 0 && close(directory) == 0);
}

static void *moves_alone(void *unused)
{
    HOLDS(syscall(SYS_unshare, CLONE_FS) == 0 && chdir("/usr") == 0 && access("bin", F_OK) == 0);
    return unused;
}

/* A thread with a working directory of its own. */
static void working_directories(void)
{
    pthread_t thread;
    HOLDS(chdir("dir") == 0);
    HOLDS(pthread_create(&thread, NULL, moves_alone, NULL) == 0 && pthread_join(thread, NULL) == 0);
    put(open("after", O_CREAT | O_WRONLY, 0600), "after");
    HOLDS(chdir("..") == 0);
    contents("dir/after");
}

static volatile int went_on;

static void *is_cancelled_later(void *name)
{
    long fd = open(name, O_RDWR | O_CREAT, 0600);
    struct iovec part = {"x", 1};
    HOLDS(fd >= 0);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HOLDS(page != MAP_FAILED && pthread_cancel(pthread_self()) == 0);
    syscall(SYS_fsync, fd);
    syscall(SYS_fdatasync, fd);
    syscall(SYS_pwritev2, fd, &part, 1L, 0L, 0L, (long)RWF_DSYNC);
    syscall(SYS_msync, page, 4096L, (long)MS_SYNC);
    went_on++;
    pthread_testcancel();
    return NULL;
}

/* syscall() is no point where a thread is cancelled. */
static void cancellation(void)
{
    for (int in_buffer = 0; in_buffer < 2; in_buffer++) {
        pthread_t thread;
        void *result;
        HOLDS(pthread_create(&thread, NULL, is_cancelled_later, in_buffer ? "synced" : "/dev/null") == 0);
        HOLDS(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
        HOLDS(went_on == in_buffer + 1);
    }
}

#ifdef SYS_open
static void old_calls(void)
{
    struct stat a;
    tell("mkdir", syscall(SYS_mkdir, "old", 0700));
    put((int)syscall(SYS_open, "old/a", O_CREAT | O_WRONLY, 0600), "old");
    put((int)syscall(SYS_creat, "old/b", 0600), "older");
    tell("stat", syscall(SYS_stat, "old/a", &a));
    printf("size %ld\n", (long)a.st_size);
    tell("lstat", syscall(SYS_lstat, "old/none", &a));
    tell("access", syscall(SYS_access, "old/b", W_OK));
    tell("rename", syscall(SYS_rename, "old/a", "old/b"));
    tell("link", syscall(SYS_link, "old/b", "old/c"));
    tell("symlink", syscall(SYS_symlink, "b", "old/d"));
    tell("readlink", syscall(SYS_readlink, "old/d", buffer, sizeof buffer));
    tell("chmod", syscall(SYS_chmod, "old/c", 0640));
    tell("unlink", syscall(SYS_unlink, "old/d"));
    tell("rmdir", syscall(SYS_rmdir, "old"));
    contents("old/c");
}
#else
static void old_calls(void) {}
#endif

int main(int argc, char **argv)
{
    HOLDS(argc >= 2 && chdir(argv[1]) == 0);
    umask(0);
    put(open("given", O_CREAT | O_WRONLY, 0644), "given");
    names();
    attributes();
    directories();
    numbers();
    bounds();
    own_links();
    open_files();
    working_directories();
    cancellation();
    old_calls();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {"sh", "-c", "cat given && ls", NULL};
        syscall(SYS_execve, "/bin/sh", arguments, environ);
        _exit(1);
    }
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    puts("whole");
    return 0;
}
