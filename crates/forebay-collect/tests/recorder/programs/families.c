/* Every way to have a child, and what it writes. argv[1]: a folder. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void reap(pid_t pid)
{
    int status;
    assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void put(const char *name, long n)
{
    char data[1000] = {0};
    int fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0600);
    assert(fd >= 0 && write(fd, data, n) == n && close(fd) == 0);
}

static int stack_child(void *name)
{
    put(name, 5);
    return 0;
}

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);
    char data[1000] = {0};
    put("parent", 1);
    int inherited = open("inherited", O_CREAT | O_RDWR, 0600);
    assert(write(inherited, data, 100) == 100);
    pid_t pid = fork();
    if (pid == 0) {
        put("forked", 2);
        assert(write(inherited, data, 30) == 30);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            put("grandchild", 3);
            _exit(0);
        }
        reap(grandchild);
        _exit(0);
    }
    reap(pid);
    assert(write(inherited, data, 7) == 7);

    /* The child moves the position of its parent. */
    int passed = open("passed", O_CREAT | O_RDWR, 0600);
    pid = fork();
    if (pid == 0) {
        assert(write(passed, data, 50) == 50);
        _exit(0);
    }
    reap(pid);
    assert(write(passed, data, 10) == 10 && close(passed) == 0);

    /* A bare clone, past libc's own fork. */
    pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        put("cloned", 4);
        _exit(0);
    }
    reap(pid);

    /* A child with our memory and descriptors of its own: what it does to them is not ours. */
    static char stack[65536];
    int kept = open("kept", O_CREAT | O_WRONLY, 0600);
    pid = clone(stack_child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, "by_clone");
    reap(pid);
    pid = vfork();
    if (pid == 0) {
        close(kept);
        int fd = open("/dev/null", O_WRONLY);
        if (fd != kept)
            dup2(fd, kept);
        execl("/bin/sh", "sh", "-c", "echo spawned > by_vfork", NULL);
        _exit(1);
    }
    reap(pid);
    assert(write(kept, data, 11) == 11);
    close(kept);

    char *args[] = {"sh", "-c", "echo 1234 > by_spawn; exec 3>>inherited; echo 12 >&3", NULL};
    assert(posix_spawn(&pid, "/bin/sh", NULL, NULL, args, environ) == 0);
    reap(pid);
    assert(system("echo by_system > by_system") == 0);

    /* A descriptor that came through a socket. */
    int pair[2];
    assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct iovec v = {data, 1};
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &inherited, sizeof(int));
    assert(sendmsg(pair[0], &m, 0) == 1);
    assert(recvmsg(pair[1], &m, 0) == 1);
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    assert(write(received, data, 13) == 13);

    /* exec: what was before and what comes after. */
    put("before_exec", 17);
    fcntl(inherited, F_SETFD, 0);
    char command[100];
    snprintf(command, sizeof command, "echo after > after_exec; echo 1234567 >&%d", inherited);
    execl("/bin/sh", "sh", "-c", command, NULL);
    return 1;
}
