/* Children that end in many ways at any moment. argv[1]: a folder, argv[2]: how many.
 * What each has completed it notes in a map of its own that outlives it: "notes", an array of struct note. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct note {
    volatile int64_t pid, opens, writes, bytes, reads, file;
};

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static struct note *notes(const char *dir, int n)
{
    char name[400];
    snprintf(name, sizeof name, "%s/notes", dir);
    int fd = open(name, O_RDWR);
    assert(fd >= 0);
    struct note *at = mmap(NULL, n * sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(at != MAP_FAILED);
    close(fd);
    return at;
}

/* Calls until it is killed, or for `calls` calls. */
static void work(const char *dir, int i, struct note *note, long calls)
{
    char name[400], data[512] = {0};
    snprintf(name, sizeof name, "%s/f%d", dir, i);
    int fd = -1;
    note->file = i;
    note->pid = getpid();
    while (calls--) {
        long what = next() % 16, n = next() % sizeof data;
        if (fd < 0 || what == 0) {
            if (fd >= 0)
                close(fd);
            fd = open(name, O_CREAT | O_RDWR, 0600);
            assert(fd >= 0);
            note->opens++;
        } else if (what < 8) {
            assert(pwrite(fd, data, n, next() % 4096) == n);
            note->writes++;
            note->bytes += n;
        } else {
            assert(pread(fd, data, n, next() % 4096) >= 0);
            note->reads++;
        }
    }
}

static void end(int how)
{
    if (how == 1)
        abort();
    if (how == 2)
        raise(SIGTERM);
    if (how == 3)
        _exit(3);
    if (how == 4)
        quick_exit(4);
    exit(5);
}

int main(int argc, char **argv)
{
    assert(argc >= 3);
    const char *dir = argv[1];
    int n = atoi(argv[2]);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    if (argc == 5) {
        int i = atoi(argv[3]);
        state = 77 + i;
        work(dir, i, &notes(dir, n)[i], atol(argv[4]));
        end(i % 6);
    }
    struct note *all = notes(dir, n);
    state = 88172645463325252ull;
    for (int i = 0; i < n; i++) {
        int kill_it = i % 6 == 0, exec_it = i % 5 == 0;
        long calls = kill_it ? 10000000 : (long)(next() % 400);
        long delay = next() % 2500;
        pid_t pid = fork();
        assert(pid >= 0);
        if (pid == 0) {
            if (exec_it) {
                char number[20], count[20];
                snprintf(number, sizeof number, "%d", i);
                snprintf(count, sizeof count, "%ld", calls);
                execl("/proc/self/exe", argv[0], dir, argv[2], number, count, NULL);
                _exit(99);
            }
            state = 77 + i;
            work(dir, i, &all[i], calls);
            end(i % 6);
        }
        if (kill_it) {
            usleep(delay);
            kill(pid, SIGKILL);
        }
        int status;
        assert(waitpid(pid, &status, 0) == pid);
        int how = i % 6;
        if (how == 0 || how == 1 || how == 2)
            assert(WIFSIGNALED(status));
        else
            assert(WIFEXITED(status) && WEXITSTATUS(status) == how);
    }
    return 0;
}
