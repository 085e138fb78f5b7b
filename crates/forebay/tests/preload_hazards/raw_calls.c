/* Calls by libc's syscall(): Node.js, and whoever wants a call that libc has no function for. */
#define _GNU_SOURCE
#include "common.h"

#include <stdint.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
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
