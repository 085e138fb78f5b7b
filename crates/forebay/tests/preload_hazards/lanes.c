/* A process that shares memory with the bridge, because it has asked often: what a child, a changed user, a closed
 * socket or a sudden death must not spoil. */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ENOUGH = 40, NOBODY = 65534 };
extern char **environ;

static void warm(void)
{
    struct stat st;
    for (int i = 0; i < ENOUGH; i++)
        HOLDS(stat("there", &st) == 0);
}

/* Is memory of the bridge mapped into this process? Natively there is none. */
static int shares(void)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    HOLDS(maps != NULL);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "memfd:forebay-lane") != NULL;
    fclose(maps);
    return found;
}

static int result_of(pid_t pid)
{
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The raw calls change the thread behind libc's back. */
static void change_user(uid_t user, gid_t group)
{
    if (user == 0)
        HOLDS(syscall(SYS_setresuid, -1, user, -1) == 0);
    HOLDS(syscall(SYS_setresgid, -1, group, -1) == 0);
    if (user != 0)
        HOLDS(syscall(SYS_setresuid, -1, user, -1) == 0);
}

static void other_user(void)
{
    for (int i = 0; i < 20; i++) {
        warm();
        int fd = open("secret", O_RDONLY);
        HOLDS(fd >= 0 && close(fd) == 0);
        change_user(NOBODY, NOBODY);
        HOLDS(open("secret", O_RDONLY) == -1 && errno == EACCES);
        HOLDS(mkdir("not mine", 0700) == -1 && errno == EACCES);
        change_user(0, 0);
    }
}

static void children(int buffered)
{
    struct stat st;
    HOLDS(shares() == buffered);
    pid_t pid = fork();
    if (pid == 0) {
        HOLDS(!shares());
        for (int i = 0; i < 100; i++)
            use_file("of the child");
        HOLDS(shares() == buffered);
        _exit(0);
    }
    for (int i = 0; i < 100; i++)
        use_file("of the parent");
    HOLDS(result_of(pid) == 0);
    /* Behind libc's back. */
    pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        for (int i = 0; i < 100; i++)
            use_file("of the child");
        _exit(0);
    }
    for (int i = 0; i < 100; i++)
        use_file("of the parent");
    HOLDS(result_of(pid) == 0);
    pid = vfork();
    if (pid == 0) {
        int there = stat("there", &st);
        execl("/bin/sh", "sh", "-c", there == 0 ? "test -e there" : "false", (char *)NULL);
        _exit(1);
    }
    HOLDS(result_of(pid) == 0);
    warm();
}

/* Killed in the midst of requests, as often as not while one is with the bridge. */
static void killed_ones(void)
{
    for (int i = 0; i < 20; i++) {
        int ready[2];
        char byte;
        HOLDS(pipe(ready) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            warm();
            HOLDS(write(ready[1], "x", 1) == 1);
            for (;;)
                use_file("of the victim");
        }
        HOLDS(read(ready[0], &byte, 1) == 1);
        usleep(137 * i);
        HOLDS(kill(pid, SIGKILL) == 0 && result_of(pid) == 128 + SIGKILL);
        HOLDS(close(ready[0]) == 0 && close(ready[1]) == 0);
        warm();
    }
    unlink("of the victim");
}

static void closed_sockets(void)
{
    for (int i = 0; i < 20; i++) {
        warm();
        /* Whatever is open, the library's sockets too. */
        HOLDS(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
        use_file("after the end of all descriptors");
        struct stat st;
        HOLDS(syscall(SYS_close_range, 3u, ~0u, 0u) == 0);
        HOLDS(stat("there", &st) == 0);
    }
}

static void *one_of_many(void *name)
{
    for (int i = 0; i < 40; i++)
        use_file(name);
    return NULL;
}

static void threads(void)
{
    char names[24][16];
    pthread_t all[24];
    for (int i = 0; i < 24; i++) {
        snprintf(names[i], sizeof names[i], "thread %d", i);
        HOLDS(pthread_create(&all[i], NULL, one_of_many, names[i]) == 0);
    }
    for (int i = 0; i < 24; i++)
        HOLDS(pthread_join(all[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    HOLDS(argc >= 2 && chdir(argv[1]) == 0);
    int buffered = getenv("FOREBAY_BUFFER") != NULL;
    umask(0);
    HOLDS(close(open("there", O_CREAT | O_WRONLY, 0666)) == 0);
    HOLDS(close(open("secret", O_CREAT | O_WRONLY, 0600)) == 0);
    warm();
    HOLDS(shares() == buffered);
    if (argc == 2) {
        /* A new program has nothing of the old one's. */
        execl("/proc/self/exe", argv[0], argv[1], "again", (char *)NULL);
        HOLDS(0);
    }
    children(buffered);
    killed_ones();
    closed_sockets();
    threads();
    if (geteuid() == 0)
        other_user();
    HOLDS(unlink("there") == 0 && unlink("secret") == 0);
    puts("whole");
    return 0;
}
