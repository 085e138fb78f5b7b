/* Calls the less common functions of libc on the directory argv[1] and prints what they gave.
 * Run on a native directory and in the buffer, the output has to be the same. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wchar.h>

extern char **environ;
static const char *top;

/* A result with its errno, where it failed. */
#define SHOW(call) do { errno = 0; long r_ = (long)(call); int e_ = errno; \
    printf("%s = %ld%s%s\n", #call, r_, r_ < 0 ? " " : "", r_ < 0 ? strerrorname_np(e_) : ""); } while (0)

/* A path without the directory it was made in. */
static const char *tail(const char *path)
{
    size_t n = strlen(top);
    return path && strncmp(path, top, n) == 0 ? path + n : path ? path : "(null)";
}

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static char seen[64][PATH_MAX];
static int seen_count;
static int compare_seen(const void *a, const void *b) { return strcmp(a, b); }
static void print_seen(const char *what)
{
    qsort(seen, seen_count, sizeof seen[0], compare_seen);
    for (int i = 0; i < seen_count; i++)
        printf("%s %s\n", what, seen[i]);
    seen_count = 0;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    struct stat here;
    int found = lstat(path + at->base, &here);
    sprintf(seen[seen_count++], "%s kind %d base %s level %d size %ld from here %d", tail(path), kind, path + at->base,
            at->level, kind == FTW_F ? (long)st->st_size : 0L, found);
    return 0;
}

static int visit_plain(const char *path, const struct stat *st, int kind)
{
    (void)st;
    sprintf(seen[seen_count++], "%s kind %d", tail(path), kind);
    return 0;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    if (!f) { printf("fopen %s: %s\n", path, strerrorname_np(errno)); return; }
    fputs(text, f);
    fclose(f);
}

static void show(const char *path)
{
    char text[256] = "";
    FILE *f = fopen(path, "r");
    if (!f) { printf("%s: %s\n", path, strerrorname_np(errno)); return; }
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    printf("%s holds \"%s\"\n", path, text);
    fclose(f);
}

static void temporaries(void)
{
    char a[] = "fileXXXXXX", b[] = "fileXXXXXX.txt", c[] = "dirXXXXXX", d[] = "short", e[] = "freeXXXXXX";
    int fd = mkstemp(a);
    struct stat st;
    fstat(fd, &st);
    printf("mkstemp %d %zu %o %d\n", fd >= 0, strlen(a), st.st_mode, strcmp(a, "fileXXXXXX") != 0);
    SHOW(access(a, W_OK));
    close(fd);
    SHOW(unlink(a));
    fd = mkostemps(b, 4, O_APPEND);
    printf("mkostemps %d %s %d\n", fd >= 0, b + 10, (fcntl(fd, F_GETFL) & O_APPEND) != 0);
    close(fd);
    SHOW(unlink(b));
    printf("mkdtemp %d\n", mkdtemp(c) == c);
    stat(c, &st);
    printf("mode %o\n", st.st_mode);
    SHOW(rmdir(c));
    SHOW(mkstemp(d));
    printf("mktemp %d %d\n", strlen(mktemp(e)) == 10, access(e, F_OK));
    char *t = tempnam(top, "pre");
    printf("tempnam %d %.4s\n", t != NULL, t ? tail(t) : "");
    free(t);
}

static void streams(void)
{
    FILE *f;
    printf("x on existing: %d %s\n", fopen("a/one", "wx") == NULL, strerrorname_np(errno));
    printf("bad mode: %d %s\n", fopen("a/one", "q") == NULL, strerrorname_np(errno));
    f = fopen("wide", "w,ccs=UTF-8");
    printf("ccs %d\n", f != NULL);
    if (f) { fputws(L"\x00e4\n", f); fclose(f); }
    struct stat st;
    stat("wide", &st);
    printf("wide has %ld bytes\n", (long)st.st_size);
    f = fopen("app", "a");
    fputs("12", f);
    printf("append at %ld\n", ftell(f));
    fclose(f);
    static const char *const appending[] = {"a", "ab", "ae", "a+", "a,ccs=UTF-8"};
    for (int n = 0; n < 5; n++) {
        f = fopen("app", appending[n]);
        printf("%s begins at %ld, %ld\n", appending[n], ftell(f), (long)lseek(fileno(f), 0, SEEK_CUR));
        fclose(f);
    }
    f = fopen("app", "a+");
    fputs("34", f);
    rewind(f);
    char text[8] = "";
    printf("read %s\n", fgets(text, 8, f));
    f = freopen("app", "r+", f);
    printf("freopen %d %s\n", f != NULL, f ? fgets(text, 8, f) : "");
    f = freopen("re", "w", f);
    fputs("fresh", f);
    fclose(f);
    show("re");
    f = fopen("re", "r");
    printf("freopen of nothing %d %s\n", freopen("none/x", "r", f) == NULL, strerrorname_np(errno));
    int fd = open("mode", O_CREAT | O_WRONLY | O_EXCL, 0444);
    SHOW(write(fd, "x", 1));
    close(fd);
    SHOW(open("mode", O_CREAT | O_EXCL | O_RDWR, 0600));
    SHOW(open("a", O_WRONLY));
    SHOW(open("a/one/", O_RDONLY));
    SHOW(open("slink", O_RDONLY | O_NOFOLLOW));
    SHOW(open("", O_RDONLY));
    SHOW(open("a/one", O_RDONLY | O_DIRECTORY));
    SHOW(creat("a", 0600));
}

static void listings(void)
{
    struct dirent **names;
    int n = scandir("a", &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        printf("scandir %s\n", names[i]->d_name);
        free(names[i]);
    }
    free(names);
    DIR *dir = opendir("a");
    printf("dirfd %d\n", dirfd(dir) >= 0);
    struct stat s1, s2;
    fstat(dirfd(dir), &s1);
    stat("a", &s2);
    printf("same %d\n", s1.st_ino == s2.st_ino);
    readdir(dir);
    long place = telldir(dir);
    char second[256];
    strcpy(second, readdir(dir)->d_name);
    while (readdir(dir))
        ;
    seekdir(dir, place);
    printf("seekdir %d\n", strcmp(second, readdir(dir)->d_name) == 0);
    rewinddir(dir);
    int count = 0;
    errno = 77;
    while (readdir(dir))
        count++;
    printf("count %d errno %d\n", count, errno);
    SHOW(openat(dirfd(dir), "one", O_RDONLY) >= 0);
    SHOW(faccessat(dirfd(dir), "one", R_OK, 0));
    SHOW(closedir(dir));
    int fd = open("a", O_RDONLY | O_DIRECTORY);
    dir = fdopendir(fd);
    count = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW);
        count += e->d_type == DT_UNKNOWN || IFTODT(st.st_mode) == e->d_type;
    }
    printf("fdopendir %d\n", count);
    closedir(dir);
    printf("opendir of a file %d %s\n", opendir("a/one") == NULL, strerrorname_np(errno));
    glob_t g;
    SHOW(glob("*/o*", 0, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++)
        printf("glob %s\n", g.gl_pathv[i]);
    globfree(&g);
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/a/{one,two,nine}", top);
    SHOW(glob(pattern, GLOB_BRACE | GLOB_MARK, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++)
        printf("glob %s\n", tail(g.gl_pathv[i]));
    globfree(&g);
    SHOW(glob("nothing*", 0, NULL, &g));
    SHOW(nftw(".", visit, 4, FTW_PHYS));
    print_seen("nftw");
    SHOW(nftw(top, visit, 4, FTW_PHYS | FTW_DEPTH | FTW_CHDIR));
    print_seen("nftw depth");
    SHOW(nftw("a/", visit, 4, 0));
    print_seen("nftw follow");
    SHOW(ftw("a", visit_plain, 4));
    print_seen("ftw");
    SHOW(nftw("none", visit, 4, 0));
    char *roots[] = {"a", "slink", "none", NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL, by_name);
    for (FTSENT *e; (e = fts_read(fts));)
        printf("fts %s info %d level %d name %s errno %d\n", e->fts_path, e->fts_info, e->fts_level, e->fts_name,
               e->fts_info == FTS_NS ? e->fts_errno : 0);
    printf("fts end %d\n", errno);
    SHOW(fts_close(fts));
    fts = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *e; (e = fts_read(fts));) {
        printf("fts logical %s info %d\n", e->fts_path, e->fts_info);
        if (strcmp(e->fts_name, "deep") == 0 && e->fts_info == FTS_D)
            fts_set(fts, e, FTS_SKIP);
        else if (e->fts_info == FTS_D)
            for (FTSENT *c = fts_children(fts, 0); c; c = c->fts_link)
                printf("child %s\n", c->fts_name);
    }
    SHOW(fts_close(fts));
}

static void attributes(void)
{
    struct stat st;
    struct timeval tv[2] = {{1000, 5}, {2000, 6}};
    struct timespec ts[2] = {{3000, 7}, {4000, 8}};
    SHOW(chmod("a/one", 0640));
    SHOW(fchmodat(AT_FDCWD, "slink", 0600, AT_SYMLINK_NOFOLLOW));
    SHOW(utimes("a/one", tv));
    stat("a/one", &st);
    printf("%o %ld %ld\n", st.st_mode, (long)st.st_atim.tv_sec, (long)st.st_mtim.tv_nsec);
    SHOW(utimensat(AT_FDCWD, "slink", ts, AT_SYMLINK_NOFOLLOW));
    lstat("slink", &st);
    printf("link %o %ld %ld\n", st.st_mode, (long)st.st_mtim.tv_sec, (long)st.st_size);
    SHOW(lutimes("a/one", tv));
    SHOW(utime("a/one", NULL));
    SHOW(utimensat(AT_FDCWD, "none", ts, 0));
    SHOW(truncate("a/one", 2));
    show("a/one");
    SHOW(truncate("a", 2));
    SHOW(truncate("none", 2));
    SHOW(setxattr("a/one", "user.mine", "val", 3, 0));
    char text[64] = "";
    SHOW(getxattr("a/one", "user.mine", text, sizeof text));
    SHOW(listxattr("a/one", text, sizeof text));
    printf("list %s\n", text);
    SHOW(listxattr("a/one", NULL, 0));
    SHOW(llistxattr("a/one", text, 3));
    SHOW(removexattr("a/one", "user.mine"));
    SHOW(listxattr("a/one", NULL, 0));
    SHOW(getxattr("none", "user.mine", text, sizeof text));
    int fd = open("a/one", O_RDONLY);
    SHOW(flistxattr(fd, NULL, 0));
    close(fd);
    struct statvfs v;
    SHOW(statvfs("a/one", &v));
    SHOW(pathconf("a/one", _PC_NAME_MAX));
    SHOW(access("a/one", X_OK));
    SHOW(access("none", F_OK));
    SHOW(eaccess("a", X_OK));
    SHOW(ftok("a/one", 3) != -1);
    SHOW(mkfifo("fifo", 0600));
    fd = open("fifo", O_RDWR);
    SHOW(write(fd, "p", 1));
    SHOW(read(fd, text, 1));
    close(fd);
    struct statx sx;
    SHOW(statx(AT_FDCWD, "a/one", 0, STATX_BASIC_STATS, &sx));
    printf("statx %llu %o\n", (unsigned long long)sx.stx_size, sx.stx_mode);
}

static void links(void)
{
    char text[PATH_MAX];
    ssize_t n = readlink("slink", text, sizeof text);
    printf("readlink %.*s\n", (int)n, text);
    SHOW(readlink("slink", text, 2));
    SHOW(readlink("a", text, sizeof text));
    printf("realpath %s\n", tail(realpath("slink", text)));
    char *p = realpath("./a/../a/deep/.", NULL);
    printf("realpath %s\n", tail(p));
    free(p);
    p = canonicalize_file_name("none");
    printf("canonical %d %s\n", p == NULL, strerrorname_np(errno));
    SHOW(link("a/one", "hard"));
    SHOW(link("a/one", "hard"));
    SHOW(link("a", "harddir"));
    SHOW(rename("hard", "harder"));
    SHOW(renameat2(AT_FDCWD, "harder", AT_FDCWD, "a/two", RENAME_NOREPLACE));
    SHOW(renameat2(AT_FDCWD, "harder", AT_FDCWD, "a/two", RENAME_EXCHANGE));
    SHOW(rename("a", "a/deep/x"));
    SHOW(rename("none", "x"));
    SHOW(rename("a/one", "a/deep"));
    SHOW(remove("harder"));
    SHOW(remove("a/two"));
    SHOW(rmdir("a"));
    SHOW(unlink("a"));
    SHOW(unlink("none"));
    SHOW(mkdir("a", 0700));
    SHOW(mkdir("none/x", 0700));
    SHOW(symlink("x", "slink"));
    SHOW(symlink("loop", "loop"));
    SHOW(open("loop", O_RDONLY));
    SHOW(unlink("loop"));
    /* Another file system, and one that does not exist. */
    SHOW(rename("a/one", "/dev/shm/forebay-elsewhere"));
    SHOW(link("a/one", "/dev/shm/forebay-elsewhere"));
}

static void directories(void)
{
    char text[PATH_MAX];
    SHOW(chdir("a/deep"));
    printf("cwd %s\n", tail(getcwd(text, sizeof text)));
    printf("short %d %s\n", getcwd(text, 3) == NULL, strerrorname_np(errno));
    char *p = getcwd(NULL, 0);
    printf("cwd %s\n", tail(p));
    free(p);
    p = get_current_dir_name();
    printf("cwd %s\n", tail(p));
    free(p);
    show("../one");
    SHOW(chdir("three"));
    SHOW(chdir("none"));
    int fd = open("..", O_RDONLY | O_DIRECTORY);
    SHOW(fchdir(fd));
    close(fd);
    printf("cwd %s\n", tail(getcwd(text, sizeof text)));
    SHOW(mkdir("gone", 0700));
    SHOW(chdir("gone"));
    SHOW(rmdir("../gone"));
    printf("gone %d %s\n", getcwd(text, sizeof text) == NULL, strerrorname_np(errno));
    SHOW(open("x", O_CREAT | O_WRONLY, 0600));
    SHOW(chdir(top));
}

/* Arguments that the kernel refuses, and modes of which it takes a part. */
static void oddities(void)
{
    struct stat st;
    struct statx sx;
    struct timespec bad[2] = {{0, 2000000000}, {0, 0}}, omit[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    struct timeval worse[2] = {{0, 1000000}, {0, 0}};
    char text[16];
    const char *volatile null = NULL;
    put("odd", "odd");
    SHOW(symlink("", "empty"));
    SHOW(mkdir("modes", 07777));
    stat("modes", &st);
    printf("mode %o\n", st.st_mode);
    SHOW(rmdir("modes"));
    close(open("modes", O_CREAT | O_WRONLY, 07777));
    stat("modes", &st);
    printf("mode %o\n", st.st_mode);
    SHOW(chmod("modes", 07777));
    stat("modes", &st);
    printf("mode %o\n", st.st_mode);
    SHOW(unlink("modes"));
    SHOW(mknod("modes", 0644, 0));
    stat("modes", &st);
    printf("mode %o\n", st.st_mode);
    SHOW(mknod("modes", S_IFIFO, 0));
    SHOW(mknod("odd2", S_IFDIR | 0700, 0));
    SHOW(unlink("modes"));
    SHOW(linkat(AT_FDCWD, "odd", AT_FDCWD, "odd3", 0x40000));
    SHOW(unlinkat(AT_FDCWD, "odd", 0x40000));
    SHOW(unlinkat(AT_FDCWD, "odd", AT_REMOVEDIR));
    SHOW(renameat2(AT_FDCWD, "odd", AT_FDCWD, "odd3", 0x80));
    SHOW(renameat2(AT_FDCWD, "odd", AT_FDCWD, "odd3", RENAME_NOREPLACE | RENAME_EXCHANGE));
    SHOW(renameat2(AT_FDCWD, "odd", AT_FDCWD, "none", RENAME_EXCHANGE));
    SHOW(access("odd", 8));
    SHOW(faccessat(AT_FDCWD, "odd", R_OK, 0x40000));
    SHOW(faccessat(AT_FDCWD, "slink", R_OK, AT_SYMLINK_NOFOLLOW));
    SHOW(fstatat(AT_FDCWD, "odd", &st, 0x40000));
    SHOW(statx(AT_FDCWD, "odd", 0x40000, STATX_BASIC_STATS, &sx));
    SHOW(statx(AT_FDCWD, "odd", 0, 1U << 31, &sx));
    SHOW(utimensat(AT_FDCWD, "odd", bad, 0));
    SHOW(utimensat(AT_FDCWD, "odd", omit, 0));
    SHOW(utimensat(AT_FDCWD, "odd", omit, 0x40000));
    SHOW(utimes("odd", worse));
    SHOW(lutimes("odd", worse));
    SHOW(truncate("odd", -1));
    SHOW(readlink("slink", text, 0));
    SHOW(open("odd", O_RDWR | O_DIRECTORY | O_CREAT, 0600));
    SHOW(open("new/", O_WRONLY | O_CREAT, 0600));
    SHOW(open("odd", O_PATH) >= 0);
    int fd = open("odd", O_RDONLY), dir = open(".", O_PATH | O_DIRECTORY);
    SHOW(openat(fd, "odd", O_RDONLY));
    SHOW(openat(-1, "odd", O_RDONLY));
    SHOW(fstatat(dir, "odd", &st, 0));
    SHOW(fstatat(fd, "", &st, AT_EMPTY_PATH));
    SHOW(fstatat(fd, "", &st, 0));
    SHOW(fchdir(fd));
    SHOW(fdopendir(fd) == NULL);
    SHOW(fdopendir(dir) == NULL);
    close(fd);
    close(dir);
    SHOW(fchownat(AT_FDCWD, "odd", -1, -1, 0x40000));
    SHOW(fchmodat(AT_FDCWD, "odd", 0600, 0x40000));
    SHOW(mkdir(".", 0700));
    SHOW(mkdir("..", 0700));
    SHOW(rmdir("a/."));
    SHOW(rmdir("a/deep/.."));
    SHOW(unlink("."));
    SHOW(rename(".", "odd4"));
    SHOW(rename("odd", "."));
    SHOW(rename("odd", "odd/"));
    SHOW(stat("odd/", &st));
    SHOW(stat("odd/.", &st));
    SHOW(lstat("a/deep/up/", &st));
    SHOW(S_ISDIR(st.st_mode));
    SHOW(chdir("odd"));
    SHOW(stat(null, &st));
    SHOW(open(null, O_RDONLY));
    SHOW(rename("odd", (char *)1));
    SHOW(readlink(null, text, 3));
    SHOW(stat("odd", (struct stat *)8));
    SHOW(unlink("odd"));
}

static int wait_for(pid_t pid)
{
    int status = -1;
    fflush(stdout);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts a program and waits for it before anything is printed, so that its own output comes first. */
#define SPAWNED(call) do { pid = -1; fflush(stdout); int r_ = (call); int code_ = r_ == 0 ? wait_for(pid) : -1; \
    printf("%s = %d exit %d\n", #call, r_, code_); } while (0)

#define IN_CHILD(call) do { fflush(stdout); pid_t p_ = fork(); if (p_ == 0) { call; printf("%s: %s\n", #call, strerrorname_np(errno)); \
    fflush(stdout); _exit(9); } printf("exit %d\n", wait_for(p_)); } while (0)

static void programs(void)
{
    put("script", "#!/bin/sh\necho \"script $0 $*\"\nexit 3\n");
    chmod("script", 0700);
    put("bare", "echo \"bare $0 $*\"\n");
    chmod("bare", 0700);
    put("nested", "#!./script inner\n");
    chmod("nested", 0700);
    put("plain", "#!/bin/sh\n");
    char *argv[] = {"name", "x", "y z", NULL}, *none[] = {NULL}, *path[] = {"PATH=/nowhere", NULL};
    IN_CHILD(execl("./script", "s", "1", "2", "3", "4", "5", "6", "7", "8", (char *)NULL));
    IN_CHILD(execle("./script", "s", "1", (char *)NULL, none));
    IN_CHILD(execlp("./bare", "bare", "1", (char *)NULL));
    IN_CHILD(execv("script", argv));
    IN_CHILD(execv("bare", argv));
    IN_CHILD(execv("nested", argv));
    IN_CHILD(execv("plain", argv));
    IN_CHILD(execv("none", argv));
    IN_CHILD(execv("a", argv));
    setenv("PATH", top, 1);
    IN_CHILD(execvp("script", argv));
    IN_CHILD(execvpe("script", argv, path));
    IN_CHILD(execvp("absent", argv));
    setenv("PATH", "/usr/bin:/bin", 1);
    int fd = open("script", O_RDONLY);
    IN_CHILD(fexecve(fd, argv, environ));
    close(fd);
    int dir = open("a", O_RDONLY | O_DIRECTORY);
    put("a/quiet", "#!/bin/sh\necho \"quiet $*\"\n");
    chmod("a/quiet", 0700);
    IN_CHILD(execveat(dir, "quiet", argv, environ, 0));
    close(dir);

    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    SPAWNED(posix_spawn(&pid, "/bin/echo", &actions, NULL, (char *[]){"echo", "to file", NULL}, environ));
    show("spawned");
    SPAWNED(posix_spawn(&pid, "./script", NULL, NULL, argv, environ));
    SPAWNED(posix_spawn(&pid, "./none", NULL, NULL, argv, environ));
    posix_spawn_file_actions_t moves;
    posix_spawn_file_actions_init(&moves);
    posix_spawn_file_actions_addchdir_np(&moves, "a/deep");
    posix_spawn_file_actions_addopen(&moves, 1, "here", O_WRONLY | O_CREAT, 0644);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    posix_spawnattr_setsigmask(&attr, &set);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    SPAWNED(posix_spawnp(&pid, "grep", &moves, &attr, (char *[]){"grep", "SigBlk", "/proc/self/status", NULL}, environ));
    show("a/deep/here");
    posix_spawn_file_actions_addopen(&moves, 3, "none/none", O_RDONLY, 0);
    SPAWNED(posix_spawnp(&pid, "true", &moves, NULL, argv, environ));
    fflush(stdout);
    SHOW(system("cat a/one > copied && ./script from system"));
    show("copied");
    FILE *f = popen("ls a", "r");
    char line[256];
    while (fgets(line, sizeof line, f))
        printf("popen %s", line);
    printf("pclose %d\n", pclose(f));
}

static void library(const char *so)
{
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "cp %s lib.so", so);
    if (system(command) != 0)
        return;
    void *h = dlopen("./lib.so", RTLD_NOW);
    int (*f)(void) = h ? (int (*)(void))dlsym(h, "answer") : NULL;
    printf("dlopen %d answer %d\n", h != NULL, f ? f() : -1);
    void *again = dlopen("./lib.so", RTLD_NOW);
    printf("again %d\n", h == again);
    printf("missing %d %d\n", dlopen("./none.so", RTLD_NOW) == NULL, dlerror() != NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    top = argv[1];
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    umask(027);
    if (chdir(top) != 0)
        return 1;
    SHOW(mkdir("a", 0777));
    SHOW(mkdir("a/deep", 0700));
    SHOW(mkdir("a/deep/three", 0700));
    put("a/one", "first");
    put("a/two", "second");
    put("a/deep/four", "4");
    SHOW(symlink("a/one", "slink"));
    SHOW(symlink("../..", "a/deep/up"));
    SHOW(symlink("nowhere", "a/dangling"));
    temporaries();
    listings();
    streams();
    attributes();
    links();
    directories();
    oddities();
    programs();
    library(argv[2]);
    return 0;
}
