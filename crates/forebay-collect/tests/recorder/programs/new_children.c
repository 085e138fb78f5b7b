/* Children that close and duplicate before they do anything else. argv[1]: a folder, argv[2]: a program without a linker. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 50

extern char **environ;
static int opened[FILES];
static pthread_barrier_t start;

static void reap(pid_t pid)
{
    int status;
    assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *writer(void *data)
{
    (void)data;
    pthread_barrier_wait(&start);
    int fd = open("by_thread", O_CREAT | O_WRONLY, 0600);
    assert(fd >= 0 && write(fd, "12345", 5) == 5);
    return NULL;
}

int main(int argc, char **argv)
{
    assert(argc == 3 && chdir(argv[1]) == 0);
    char *dynamic[] = {"true", NULL}, *fixed[] = {argv[2], NULL}, *none[] = {"/no/such", NULL};
    int pipes[2], closed = open("closed", O_CREAT | O_RDWR, 0600), kept = open("kept", O_CREAT | O_RDWR, 0600);
    assert(pipe(pipes) == 0 && closed >= 0 && kept >= 0);

    /* What a shell's child does for a pipeline. */
    pid_t pid = fork();
    if (pid == 0) {
        close(closed);
        assert(dup2(pipes[1], 7) == 7);
        close(pipes[0]);
        close_range(20, 30, 0);
        execvp("true", dynamic);
        _exit(1);
    }
    reap(pid);

    /* Programs that the recorder does not reach, by fork, by vfork and by spawn. */
    pid = fork();
    if (pid == 0) {
        close(closed);
        execv(none[0], none);
        execv(fixed[0], fixed);
        _exit(1);
    }
    reap(pid);
    pid = vfork();
    if (pid == 0) {
        execl(fixed[0], "a", "b", "c", "d", "e", "f", "g", "h", NULL);
        _exit(1);
    }
    reap(pid);
    assert(posix_spawn(&pid, fixed[0], NULL, NULL, fixed, environ) == 0);
    reap(pid);
    int image = open(fixed[0], O_RDONLY);
    pid = fork();
    if (pid == 0) {
        execveat(image, "", fixed, environ, AT_EMPTY_PATH);
        _exit(1);
    }
    reap(pid);
    close(image);

    /* Programs whose environment does not name it. */
    char *empty[] = {NULL};
    pid = fork();
    if (pid == 0) {
        execve("/bin/true", dynamic, empty);
        _exit(1);
    }
    reap(pid);
    assert(posix_spawnp(&pid, "true", NULL, NULL, dynamic, empty) == 0);
    reap(pid);

    /* One that goes on to write; what it had closed is another file by then. */
    pid = fork();
    if (pid == 0) {
        close(closed);
        int fd = open("own", O_CREAT | O_WRONLY, 0600);
        assert(fd == closed && write(fd, "1234567", 7) == 7 && write(kept, "123", 3) == 3);
        _exit(0);
    }
    reap(pid);

    /* One thread closes while another makes the table. */
    for (int i = 0; i < FILES; i++) {
        char name[20];
        snprintf(name, sizeof name, "many%d", i);
        opened[i] = open(name, O_CREAT | O_RDWR, 0600);
        assert(opened[i] >= 0);
    }
    for (int n = 0; n < 100; n++) {
        pid = fork();
        if (pid == 0) {
            pthread_t thread;
            pthread_barrier_init(&start, NULL, 2);
            assert(pthread_create(&thread, NULL, writer, NULL) == 0);
            pthread_barrier_wait(&start);
            for (int i = 0; i < FILES; i++)
                assert(close(opened[i]) == 0);
            pthread_join(thread, NULL);
            _exit(0);
        }
        reap(pid);
    }
    assert(write(opened[0], "12", 2) == 2);
    return 0;
}
