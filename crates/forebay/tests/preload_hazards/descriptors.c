/* A program that closes what it does not know, and takes numbers that it believes to be free. */
#define _GNU_SOURCE
#include "common.h"
#include <sys/socket.h>
#include <sys/syscall.h>

/* The number of an open socket that the program has not made, or -1. */
static int foreign_socket(void)
{
    for (int fd = 3; fd < 4096; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
            return fd;
    }
    return -1;
}

static int numbers_below(int limit)
{
    int count = 0;
    for (int fd = 0; fd < limit; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    int before = numbers_below(256);
    use_file("before");
    HOLDS(numbers_below(256) == before);

    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    use_file("after close");
    HOLDS(close_range(3, ~0U, 0) == 0);
    use_file("after close_range");
    closefrom(3);
    use_file("after closefrom");
    for (int fd = 3; fd < 4096; fd++)
        syscall(SYS_close, fd);
    use_file("after system calls");
    HOLDS(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    use_file("after a system call");

    /* A file of the program lands on the number of a connection: its bytes must stay its own. */
    for (int round = 0; round < 3; round++) {
        use_file("connect");
        int theirs = foreign_socket();
        int own = open("own", O_CREAT | O_RDWR | O_TRUNC, 0600);
        HOLDS(own >= 0);
        int number = theirs >= 0 ? theirs : 900;
        if (round == 0)
            HOLDS(dup2(own, number) == number);
        else if (round == 1)
            HOLDS(dup3(own, number, O_CLOEXEC) == number);
        else
            HOLDS(syscall(SYS_dup3, own, number, 0) == number);
        close(own);
        use_file("beside");
        HOLDS(mkdir("directory", 0700) == 0 && rmdir("directory") == 0);
        HOLDS(write(number, "mine", 4) == 4);
        struct stat st;
        HOLDS(fstat(number, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 4);
        HOLDS(close(number) == 0);
        HOLDS(unlink("own") == 0);
    }

    /* The same with a socket of the program, into which a request would fit. */
    use_file("connect");
    int pair[2], theirs = foreign_socket();
    if (theirs >= 0) {
        HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0);
        HOLDS(syscall(SYS_dup3, pair[0], theirs, 0) == theirs);
        use_file("beside");
        char text[16];
        HOLDS(recv(pair[1], text, sizeof text, 0) == -1 && errno == EAGAIN);
    }
    puts("whole");
    return 0;
}
