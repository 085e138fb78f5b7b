/* Threads that work on files while others fork, spawn and change the working set. */
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 12, ROUNDS = 150, FORKS = 40 };
extern char **environ;
static atomic_int running = THREADS;

static void *work(void *arg)
{
    char name[64];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "thread-%ld-%d", (long)arg, i % 3);
        use_file(name);
    }
    running--;
    return NULL;
}

static void *small(void *arg)
{
    use_file(arg);
    return NULL;
}

static int result_of(pid_t pid)
{
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        HOLDS(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    int kept = open("kept", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < FORKS; i++) {
        char name[64];
        pid_t pid = fork();
        if (pid == 0) {
            snprintf(name, sizeof name, "child-%d", i);
            use_file(name);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                use_file("grandchild");
                _exit(write(kept, "x", 1) == 1 ? 0 : 2);
            }
            _exit(result_of(grandchild));
        }
        HOLDS(result_of(pid) == 0);
        pid = vfork();
        if (pid == 0) {
            execl("/bin/sh", "sh", "-c", "echo y >>echoed && test -e kept", (char *)NULL);
            _exit(127);
        }
        HOLDS(result_of(pid) == 0);
        char *command[] = {"sh", "-c", "test -e echoed", NULL};
        HOLDS(posix_spawn(&pid, "/bin/sh", NULL, NULL, command, environ) == 0);
        HOLDS(result_of(pid) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    struct stat st;
    HOLDS(fstat(kept, &st) == 0 && st.st_size == FORKS);
    HOLDS(stat("echoed", &st) == 0 && st.st_size == 2 * FORKS);

    /* A thread with little stack. */
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    HOLDS(pthread_attr_setstacksize(&attr, 32768) == 0);
    HOLDS(pthread_create(&threads[0], &attr, small, "small stack") == 0);
    pthread_join(threads[0], NULL);
    puts("whole");
    return 0;
}
