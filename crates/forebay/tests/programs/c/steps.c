/* Random file operations by several processes, one at a time.
 *
 *     steps SEED STEPS PROCESSES
 *
 * Which operation comes next, by whom and on what depends on the seed alone. Each is reported in one line: result or
 * errno, contents, attributes, listings. Two file systems that keep the same promises give the same report. */
#define _GNU_SOURCE
#include <dirent.h>
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
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { FILES = 6, DIRS = 3, LINE = 8192 };

static uint64_t state;

static unsigned below(unsigned n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state * 0x2545F4914F6CDD1DULL) >> 33) % n;
}

/* What each process has open. */
static int files[FILES], dirs[DIRS];
static char root[PATH_MAX];
static char line[LINE];
static size_t used;

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line + used, LINE - used, format, arguments);
    va_end(arguments);
    used = n < 0 || used + n >= LINE ? LINE - 1 : used + n;
}

static void result(long long value)
{
    if (value < 0)
        say(" = %s", strerrorname_np(errno));
    else
        say(" = %lld", value);
}

static void done(int code)
{
    result(code < 0 ? -1 : 0);
}

/* A path of the small tree that all processes work on: relative or absolute, sometimes odd. */
static const char *path(void)
{
    static char text[4][PATH_MAX];
    static int next;
    char *p = text[next++ % 4];
    static const char *const names[] = {"a", "b", "c", "d", "old", "oldfile", "a", "b", "l", "sub"};
    int depth = 1 + below(5) / 2;
    p[0] = 0;
    if (below(4) == 0)
        sprintf(p, "%s/", root);
    for (int i = 0; i < depth; i++) {
        const char *name = names[below(10)];
        switch (below(40)) {
        case 0: name = ".."; break;
        case 1: name = "."; break;
        case 2: name = i ? "" : "."; break;
        }
        sprintf(p + strlen(p), "%s%s", i ? "/" : "", name);
    }
    if (below(30) == 0)
        strcat(p, "/");
    /* Nothing here may touch what is outside the tree. Links lead out of it by two levels at most. */
    if (p[0] == '/' && strncmp(p, root, strlen(root)) != 0)
        abort();
    int level = 0;
    char copy[PATH_MAX];
    strcpy(copy, p[0] == '/' ? p + strlen(root) : p);
    for (char *part = strtok(copy, "/"); part; part = strtok(NULL, "/")) {
        level += strcmp(part, "..") == 0 ? -1 : strcmp(part, ".") != 0;
        if (level < 0)
            return strcpy(p, "a");
    }
    say(" '%s'", strncmp(p, root, strlen(root)) == 0 ? p + strlen(root) : p);
    return p;
}

/* For a call of the `at` family; an absolute path goes with it, too. */
static int base(void)
{
    if (below(3) == 0) {
        int slot = below(DIRS);
        say(" @%d", slot);
        return dirs[slot];
    }
    return AT_FDCWD;
}

static unsigned long long hash_of(const char *bytes, ssize_t n)
{
    unsigned long long h = 1469598103934665603ULL;
    for (ssize_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 1099511628211ULL;
    return h;
}

/* The kernel counts the links of a file of the PFS, and so a removed one counts until the drain. Only paths tell. */
static void show(const struct stat *s, int by_path)
{
    int dir = S_ISDIR(s->st_mode);
    say(" mode %o uid %u gid %u", s->st_mode, s->st_uid, s->st_gid);
    /* File systems count size and links of directories as they like. */
    if (!dir)
        say(" size %lld", (long long)s->st_size);
    if (!dir && by_path)
        say(" links %lu", (unsigned long)s->st_nlink);
    /* Times that this program has set are round. */
    if (s->st_mtim.tv_sec < 1000000000)
        say(" mtime %lld.%09ld", (long long)s->st_mtim.tv_sec, s->st_mtim.tv_nsec);
}

static void list(DIR *stream)
{
    char *names[512];
    int n = 0;
    if (!stream) {
        result(-1);
        return;
    }
    errno = 0;
    for (struct dirent *e; n < 512 && (e = readdir(stream));) {
        char entry[300];
        snprintf(entry, sizeof entry, "%s:%d", e->d_name, e->d_type);
        names[n++] = strdup(entry);
    }
    closedir(stream);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && strcmp(names[j - 1], names[j]) > 0; j--) {
            char *t = names[j];
            names[j] = names[j - 1];
            names[j - 1] = t;
        }
    say(" =");
    for (int i = 0; i < n; i++) {
        say(" %s", names[i]);
        free(names[i]);
    }
}

static void open_file(void)
{
    static const int ways[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
    int slot = below(FILES), flags = ways[below(4)] | O_NONBLOCK;
    if (below(2))
        flags |= O_CREAT;
    if (below(6) == 0)
        flags |= O_EXCL | O_CREAT;
    if (below(6) == 0)
        flags |= O_TRUNC;
    if (below(6) == 0)
        flags |= O_APPEND;
    if (below(12) == 0)
        flags |= O_NOFOLLOW;
    if (below(20) == 0)
        flags |= O_DIRECTORY;
    if ((flags & (O_CREAT | O_DIRECTORY)) == (O_CREAT | O_DIRECTORY))
        flags &= ~O_DIRECTORY;
    /* What truncating a file does that is only read is not specified. */
    if ((flags & O_ACCMODE) == O_RDONLY)
        flags &= ~O_TRUNC;
    say("open %d %o", slot, flags);
    if (files[slot] >= 0)
        close(files[slot]);
    int at = base();
    files[slot] = openat(at, path(), flags, 0600 | below(0100));
    done(files[slot]);
}

static void open_dir(void)
{
    int slot = below(DIRS);
    say("opendir %d", slot);
    int fd = open(path(), O_RDONLY | O_DIRECTORY);
    done(fd);
    if (fd >= 0) {
        close(dirs[slot]);
        dirs[slot] = fd;
    }
}

static void write_some(void)
{
    char bytes[5000];
    int fd = files[below(FILES)], n = 1 + below(sizeof bytes), letter = 'a' + below(26);
    long at = below(20000);
    memset(bytes, letter, n);
    if (below(2)) {
        say("write %d x %c", n, letter);
        result(write(fd, bytes, n));
    } else {
        say("pwrite %d x %c at %ld", n, letter, at);
        result(pwrite(fd, bytes, n, at));
    }
}

static void read_some(void)
{
    static char bytes[40000];
    ssize_t n = pread(files[below(FILES)], bytes, sizeof bytes, below(3) ? 0 : below(20000));
    say("pread");
    result(n);
    say(" %llx", n > 0 ? hash_of(bytes, n) : 0);
}

static void read_path(void)
{
    static char bytes[40000];
    say("contents");
    int fd = open(path(), O_RDONLY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    result(n);
    say(" %llx", n > 0 ? hash_of(bytes, n) : 0);
    if (fd >= 0)
        close(fd);
}

static void map_some(void)
{
    int fd = files[below(FILES)];
    struct stat s;
    say("mmap");
    if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode) || s.st_size == 0) {
        say(" nothing");
        return;
    }
    char *m = mmap(NULL, s.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED) {
        result(-1);
        return;
    }
    m[below(s.st_size)] = '#';
    say(" %llx", hash_of(m, s.st_size));
    munmap(m, s.st_size);
}

static void stat_path(void)
{
    struct stat s;
    int flags = below(2) ? AT_SYMLINK_NOFOLLOW : 0;
    say("stat %d", flags);
    int at = base();
    int code = fstatat(at, path(), &s, flags);
    done(code);
    if (code == 0)
        show(&s, 1);
}

static void stat_file(void)
{
    struct stat s;
    int slot = below(FILES);
    say("fstat %d", slot);
    int code = fstat(files[slot], &s);
    done(code);
    if (code == 0)
        show(&s, 0);
}

static void same_file(void)
{
    struct stat s, t;
    say("same");
    int a = stat(path(), &s), b = stat(path(), &t);
    say(" = %d", a < 0 || b < 0 ? -1 : s.st_ino == t.st_ino && s.st_dev == t.st_dev);
}

static void rename_path(void)
{
    static const unsigned ways[] = {0, 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    unsigned flags = ways[below(6)];
    say("rename %u", flags);
    int from = base();
    const char *a = path();
    int to = base();
    const char *b = path();
    done(flags ? renameat2(from, a, to, b, flags) : renameat(from, a, to, b));
}

static void link_path(void)
{
    say("link");
    const char *a = path(), *b = path();
    struct stat s;
    /* Second names for links and special files are not offered for what the PFS has. */
    /* Whether links to files of others are refused, and before what else, is a setting of the kernel. */
    if (lstat(a, &s) == 0 && (s.st_uid != geteuid() || (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode))))
        say(" skipped");
    else
        done(linkat(AT_FDCWD, a, AT_FDCWD, b, 0));
}

static void symlink_path(void)
{
    static const char *const targets[] = {"a", "b", "c/a", "../a", "old", "nowhere", "l", "."};
    const char *target = targets[below(8)];
    say("symlink %s", target);
    int at = base();
    done(symlinkat(target, at, path()));
}

static void read_link(void)
{
    char text[PATH_MAX];
    say("readlink");
    ssize_t n = readlink(path(), text, sizeof text - 1);
    result(n);
    if (n >= 0) {
        text[n] = 0;
        say(" %s", text);
    }
}

static void set_times(void)
{
    struct timespec times[2] = {{below(1000000), below(1000000)}, {below(1000000), below(1000000)}};
    if (below(4) == 0)
        times[1].tv_nsec = UTIME_OMIT;
    say("utimens %ld.%ld", (long)times[1].tv_sec, times[1].tv_nsec);
    int at = base();
    done(utimensat(at, path(), times, below(2) ? AT_SYMLINK_NOFOLLOW : 0));
}

static void attributes(void)
{
    char value[64];
    static const char *const names[] = {"user.x", "user.y"};
    const char *name = names[below(2)];
    ssize_t n;
    switch (below(4)) {
    case 0:
        say("setxattr %s", name);
        sprintf(value, "value %u", below(1000));
        done(setxattr(path(), name, value, strlen(value), below(3) ? 0 : XATTR_CREATE));
        return;
    case 1:
        say("getxattr %s", name);
        n = getxattr(path(), name, value, sizeof value);
        result(n);
        say(" %llx", n > 0 ? hash_of(value, n) : 0);
        return;
    case 2:
        say("removexattr %s", name);
        done(removexattr(path(), name));
        return;
    default:
        say("listxattr");
        result(listxattr(path(), NULL, 0));
    }
}

static void working_directory(void)
{
    char text[PATH_MAX];
    if (below(3)) {
        say("chdir");
        /* Mostly to the top, or all would soon sit in directories that are gone. */
        if (below(2)) {
            say(" top");
            done(chdir(root));
        } else {
            done(chdir(path()));
        }
    } else {
        int slot = below(DIRS);
        say("fchdir %d", slot);
        done(fchdir(dirs[slot]));
    }
    /* Where one can't be told where one is, paths are of no use. */
    if (!getcwd(text, sizeof text)) {
        say(" lost");
        done(chdir(root));
        return;
    }
    say(" now '%s'", strncmp(text, root, strlen(root)) == 0 ? text + strlen(root) : "outside");
    if (strncmp(text, root, strlen(root)) != 0)
        done(chdir(root));
}

static void real(void)
{
    char text[PATH_MAX];
    say("realpath");
    /* Without permission it depends on the C library's steps. */
    if (geteuid() != 0)
        return;
    char *found = realpath(path(), text);
    if (found)
        say(" = '%s'", strncmp(text, root, strlen(root)) == 0 ? text + strlen(root) : text);
    else
        result(-1);
}

static void step(void)
{
    int slot, at;
    mode_t mode;
    long size;
    used = 0;
    switch (below(36)) {
    case 0: case 1: case 2: case 3: case 4: open_file(); break;
    case 5: case 6: write_some(); break;
    case 7: read_some(); break;
    case 8: case 9: read_path(); break;
    case 10: map_some(); break;
    case 11: case 12: case 13: stat_path(); break;
    case 14: stat_file(); break;
    case 15: same_file(); break;
    case 16: case 17: case 18: rename_path(); break;
    case 19: link_path(); break;
    case 20: symlink_path(); break;
    case 21: read_link(); break;
    case 22: set_times(); break;
    case 23: attributes(); break;
    case 24: working_directory(); break;
    case 25: real(); break;
    case 26: open_dir(); break;
    case 27:
        slot = below(FILES);
        say("close %d", slot);
        done(close(files[slot]));
        files[slot] = -1;
        break;
    case 28: case 29:
        say("mkdir");
        at = base();
        done(mkdirat(at, path(), 0700 | below(0100)));
        break;
    case 30:
        say("rmdir");
        done(rmdir(path()));
        break;
    case 31: case 32:
        say("unlink");
        at = base();
        done(unlinkat(at, path(), 0));
        break;
    case 33:
        mode = 0400 | below(0400);
        say("chmod %o", mode);
        done(chmod(path(), mode));
        break;
    case 34:
        size = below(30000);
        slot = below(FILES);
        if (below(2)) {
            say("truncate %ld", size);
            done(truncate(path(), size));
        } else {
            say("ftruncate %d %ld", slot, size);
            done(ftruncate(files[slot], size));
        }
        break;
    default:
        if (below(2)) {
            say("list");
            list(opendir(path()));
        } else {
            slot = below(DIRS);
            say("list @%d", slot);
            int fd = openat(dirs[slot], ".", O_RDONLY | O_DIRECTORY);
            list(fd < 0 ? NULL : fdopendir(fd));
        }
    }
}

/* One process: does the steps that are its turn, and keeps its own view of the random numbers in step with the others. */
static void work(int in, int out)
{
    uint64_t turn;
    for (int i = 0; i < FILES; i++)
        files[i] = -1;
    for (int i = 0; i < DIRS; i++)
        dirs[i] = open(root, O_RDONLY | O_DIRECTORY);
    while (read(in, &turn, sizeof turn) == sizeof turn) {
        state = turn;
        step();
        if (write(out, line, used + 1) != (ssize_t)used + 1)
            _exit(1);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    enum { MOST = 16 };
    int to[MOST], from[MOST], processes;
    if (argc != 4 || (processes = atoi(argv[3])) < 1 || processes > MOST || !getcwd(root, sizeof root)) {
        fprintf(stderr, "usage: steps SEED STEPS PROCESSES\n");
        return 2;
    }
    umask(022);
    for (int i = 0; i < processes; i++) {
        int request[2], answer[2];
        if (pipe(request) < 0 || pipe(answer) < 0)
            return 1;
        if (fork() == 0) {
            close(request[1]);
            close(answer[0]);
            for (int j = 0; j < i; j++) {
                close(to[j]);
                close(from[j]);
            }
            /* Judged by its permissions, when there is one to judge. */
            if (i == 1 && geteuid() == 0 && (setegid(1002) < 0 || seteuid(1001) < 0))
                _exit(1);
            work(request[0], answer[1]);
        }
        close(request[0]);
        close(answer[1]);
        to[i] = request[1];
        from[i] = answer[0];
    }
    uint64_t seed = strtoull(argv[1], NULL, 0) * 0x9E3779B97F4A7C15ULL + 1;
    for (int i = 0; i < atoi(argv[2]); i++) {
        char report[LINE];
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        int who = (seed >> 33) % processes;
        uint64_t turn = (seed ^ seed >> 29) | 1;
        if (write(to[who], &turn, sizeof turn) != sizeof turn || read(from[who], report, sizeof report) <= 0) {
            printf("step %d: process %d is gone\n", i, who);
            return 1;
        }
        printf("%d.%d %s\n", i, who, report);
    }
    return 0;
}
