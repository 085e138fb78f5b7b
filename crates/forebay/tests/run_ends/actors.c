/* A command whose children act before, at and after its end: `actors SEED BUFFER LEDGER`.
 *
 * Every change is written into the ledger, which is outside the buffer: `I` before it and `D` when it is acknowledged,
 * each with the names and what they hold from then on (`-` for nothing, `/` for a directory). `E` is an error that no
 * child may get. All children keep the ledger open and locked, so whoever gets that lock knows that
 * they have ended. Every name is changed by one process at a time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 96, STEPS = 5, LONG_MS = 2600 };

static unsigned long state;
static int ledger;
static char prefix[32];
static int made;

static unsigned pick(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 11) % below;
}

static void note(const char *form, ...) {
    char line[512];
    va_list args;
    va_start(args, form);
    int length = vsnprintf(line, sizeof line, form, args);
    va_end(args);
    if (write(ledger, line, length) != length)
        abort();
}

static void failed(const char *what, const char *name) {
    note("E %s %s %s\n", what, name, strerror(errno));
    _exit(1);
}

static void pause_ms(unsigned ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) && errno == EINTR) {
    }
}

/* Most pauses are short: the end of the command is near. */
static void pause_a_while(void) {
    unsigned kind = pick(400);
    if (kind == 0)
        pause_ms(LONG_MS);
    else
        pause_ms(kind < 200 ? pick(4) : pick(60));
}

static void new_name(char *name) {
    snprintf(name, TEXT, "%s.%d", prefix, made++);
}

/* Writes `text` to the end of `name`, which holds `content` then. */
static void append(int fd, const char *name, char *content, const char *text) {
    strcat(content, text);
    note("I %s %s\n", name, content);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        failed("write", name);
    note("D %s %s\n", name, content);
}

static int create(char *name, char *content, int flags) {
    new_name(name);
    content[0] = 0;
    note("I %s .\n", name);
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR | flags, 0644);
    if (fd < 0)
        failed("create", name);
    note("D %s .\n", name);
    return fd;
}

static void store(char *map, const char *name, const char *text) {
    note("I %s %s\n", name, text);
    memcpy(map, text, strlen(text));
    note("D %s %s\n", name, text);
}

static int send_fd(int socket, int fd) {
    char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(socket, &m, 0) == 1 ? 0 : -1;
}

static int receive_fd(int socket) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(socket, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void daemonize(void) {
    if (pick(2))
        setsid();
    if (pick(3) == 0 && fork())
        _exit(0);
    if (pick(4) == 0)
        for (int fd = 0; fd < 3; fd++)
            close(fd);
}

static void act(int depth);

static void begin_child(int depth) {
    unsigned long seed = state ^ (0x9e3779b97f4a7c15UL * (made + 1));
    char mine[32];
    snprintf(mine, sizeof mine, "%.20s_%d", prefix, made++);
    pick(2);
    if (fork() == 0) {
        strcpy(prefix, mine);
        made = 0;
        state = seed | 1;
        daemonize();
        act(depth + 1);
        _exit(0);
    }
}

static void act(int depth) {
    char name[TEXT], content[TEXT], other[TEXT];
    unsigned dies_at = pick(8) ? STEPS : pick(STEPS);
    for (unsigned step = 0, steps = 1 + pick(STEPS); step < steps; step++) {
        pause_a_while();
        if (step == dies_at)
            raise(SIGKILL);
        switch (pick(8)) {
        case 0: { /* a file that is written at once */
            int fd = create(name, content, 0);
            append(fd, name, content, "a");
            close(fd);
            break;
        }
        case 1: { /* a file that is held and written later */
            int fd = create(name, content, O_APPEND);
            pause_a_while();
            append(fd, name, content, "b");
            pause_a_while();
            append(fd, name, content, "c");
            close(fd);
            break;
        }
        case 2: { /* a mapping that is held without a descriptor */
            int fd = create(name, content, 0);
            append(fd, name, content, "0");
            char *map = mmap(0, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (map == MAP_FAILED)
                failed("mmap", name);
            close(fd);
            pause_a_while();
            store(map, name, "m");
            munmap(map, 1);
            break;
        }
        case 3: { /* a rename */
            int fd = create(name, content, 0);
            append(fd, name, content, "d");
            close(fd);
            pause_a_while();
            new_name(other);
            note("I %s - %s d\n", name, other);
            if (rename(name, other))
                failed("rename", name);
            note("D %s - %s d\n", name, other);
            break;
        }
        case 4: { /* a file that goes again */
            close(create(name, content, 0));
            pause_a_while();
            note("I %s -\n", name);
            if (unlink(name))
                failed("unlink", name);
            note("D %s -\n", name);
            break;
        }
        case 5: { /* a directory */
            new_name(name);
            note("I %s /\n", name);
            if (mkdir(name, 0755))
                failed("mkdir", name);
            note("D %s /\n", name);
            break;
        }
        case 6: { /* a descriptor that another process writes through */
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
                failed("socketpair", "");
            int fd = create(name, content, O_APPEND);
            if (fork() == 0) {
                close(pair[0]);
                close(fd);
                pause_a_while();
                fd = receive_fd(pair[1]);
                if (fd < 0)
                    _exit(0); /* the sender was killed */
                append(fd, name, content, "p");
                _exit(0);
            }
            close(pair[1]);
            if (send_fd(pair[0], fd))
                failed("send", name);
            close(fd);
            close(pair[0]);
            break;
        }
        case 7: /* one that begins another one late */
            if (depth < 2)
                begin_child(depth);
            break;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[2]))
        return 2;
    unsigned long seed = strtoul(argv[1], 0, 10);
    state = seed * 0x9e3779b97f4a7c15UL | 1;
    snprintf(prefix, sizeof prefix, "s%lu", seed);
    int file = open(argv[3], O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
    ledger = fcntl(file, F_DUPFD, 100);
    close(file);
    if (ledger < 0 || flock(ledger, LOCK_EX))
        return 3;
    signal(SIGPIPE, SIG_IGN);
    for (unsigned n = 1 + pick(4); n; n--)
        begin_child(0);
    pause_ms(pick(3) ? pick(5) : pick(40));
    if (pick(3) == 0)
        act(2);
    return 0;
}
