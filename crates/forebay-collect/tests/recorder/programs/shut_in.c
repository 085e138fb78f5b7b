/* Children of processes that may make few system calls. argv[1]: a folder. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define IF(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1)

static void filter(struct sock_filter *lines, unsigned short n)
{
    struct sock_fprog program = {n, lines};
    assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void reap(pid_t pid)
{
    int status;
    assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);
    int fd = open("out", O_CREAT | O_RDWR, 0600);

    /* One that had a child of vfork may not even ask for its number. */
    pid_t pid = fork();
    if (pid == 0) {
        assert(write(fd, "a", 1) == 1);
        pid_t child = vfork();
        if (child == 0)
            _exit(7);
        reap(child);
        struct sock_filter few[] = {NUMBER, IF(SYS_write), ALLOW, IF(SYS_dup), ALLOW, IF(SYS_close), ALLOW, IF(SYS_exit_group), ALLOW, KILL};
        filter(few, sizeof few / sizeof *few);
        assert(write(fd, "b", 1) == 1 && dup(fd) > fd && close(fd) == 0);
        _exit(7);
    }
    reap(pid);

    /* A child that is forked afterwards may open nothing. */
    struct sock_filter no_open[] = {NUMBER, IF(SYS_openat), KILL, ALLOW};
    filter(no_open, sizeof no_open / sizeof *no_open);
    pid = fork();
    if (pid == 0) {
        assert(write(fd, "cd", 2) == 2 && close(fd) == 0);
        _exit(7);
    }
    reap(pid);
    return 0;
}
