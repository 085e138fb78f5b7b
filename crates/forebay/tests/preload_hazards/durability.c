/* fsync and its relatives where little is allowed: in signal handlers, after jumps out of a call, in children of fork and
 * vfork, in threads that are cancelled, and while others change names. */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { SIGNALS = 200, ROUNDS = 100, THREADS = 4, CANCELLED = 40 };
static volatile sig_atomic_t handled, jumping;
static sigjmp_buf out;
static int shared_fd;

/* Changes a name, so that the next fsync has something to do. */
static void change(const char *name)
{
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    HOLDS(fd >= 0 && close(fd) == 0 && unlink(name) == 0);
}

static void handle(int signal)
{
    (void)signal;
    int kept = errno;
    change("in the handler");
    HOLDS(fsync(shared_fd) == 0);
    handled++;
    errno = kept;
    if (jumping)
        siglongjmp(out, 1);
}

static void tick(int microseconds)
{
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    HOLDS(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void await(pid_t child)
{
    int status;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) == -1 && errno == EINTR)
        ;
    HOLDS(got == child && status == 0);
}

static void *work(void *number)
{
    char name[32];
    sprintf(name, "thread %ld", (long)number);
    int fd = open(name, O_CREAT | O_RDWR | (number ? 0 : O_SYNC), 0600);
    HOLDS(fd >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        char other[48];
        sprintf(other, "%s %d", name, i);
        HOLDS(rename(i % 2 ? other : name, i % 2 ? name : other) == 0 || errno == ENOENT);
        errno = 4711;
        HOLDS(fsync(fd) == 0 && errno == 4711);
        HOLDS(fdatasync(shared_fd) == 0);
        if (i % 2 == 0)
            HOLDS(rename(other, name) == 0);
    }
    HOLDS(close(fd) == 0 && unlink(name) == 0);
    return NULL;
}

static void *sync_for_ever(void *unused)
{
    (void)unused;
    for (;;) {
        change("cancelled");
        fsync(shared_fd);
    }
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    shared_fd = open("shared", O_CREAT | O_RDWR, 0600);
    HOLDS(shared_fd >= 0 && ftruncate(shared_fd, 8192) == 0);

    /* Errors are those of the kernel. */
    int ends[2];
    HOLDS(pipe(ends) == 0);
    change("changed");
    HOLDS(fsync(ends[0]) == -1 && errno == EINVAL);
    HOLDS(fsync(-1) == -1 && errno == EBADF);
    HOLDS(fdatasync(AT_FDCWD) == -1 && errno == EBADF);
    HOLDS(syncfs(9999) == -1 && errno == EBADF);
    HOLDS(msync((void *)4096, 4096, MS_SYNC) == -1 && errno == ENOMEM);
    HOLDS(msync((void *)1, 4096, MS_SYNC) == -1 && errno == EINVAL);
    HOLDS(fsync(shared_fd) == 0 && fdatasync(shared_fd) == 0 && syncfs(shared_fd) == 0);
    int path_only = open("shared", O_PATH);
    HOLDS(path_only >= 0);
    change("changed");
    HOLDS(fsync(path_only) == -1 && errno == EBADF);

    /* Children. That of vfork shares the memory of its parent. */
    for (int i = 0; i < 20; i++) {
        change("changed");
        pid_t child = i % 2 ? vfork() : fork();
        if (child == 0)
            _exit(fsync(shared_fd) == 0 && fdatasync(shared_fd) == 0 ? 0 : 1);
        HOLDS(child > 0);
        await(child);
        HOLDS(fsync(shared_fd) == 0);
    }

    /* Threads. */
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        HOLDS(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        HOLDS(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < CANCELLED; i++) {
        pthread_t thread;
        HOLDS(pthread_create(&thread, NULL, sync_for_ever, NULL) == 0);
        usleep(1000 + i * 37);
        HOLDS(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    }
    unlink("cancelled");
    change("changed");
    HOLDS(fsync(shared_fd) == 0);

    /* Signals. */
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0);
    tick(3000);
    while (handled < SIGNALS) {
        change("outside the handler");
        HOLDS(fsync(shared_fd) == 0);
    }
    jumping = 1;
    volatile int jumps = 0;
    while (jumps < SIGNALS) {
        if (sigsetjmp(out, 1)) {
            if (++jumps == SIGNALS)
                break;
            /* Descriptors of calls that were jumped out of are lost to the program, natively too. */
            if (jumps % 50 == 0)
                for (int fd = 6; fd < 900; fd++)
                    if (fd != shared_fd)
                        close(fd);
        }
        for (;;) {
            mkdir("made", 0700);
            fsync(shared_fd);
            rmdir("made");
        }
    }
    tick(0);
    jumping = 0;
    rmdir("made");
    unlink("in the handler");
    change("changed");
    HOLDS(fsync(shared_fd) == 0);
    sync();
    puts("whole");
    return 0;
}
