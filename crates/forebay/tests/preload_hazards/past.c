/* What is made past the library, in a directory of the buffer, is not taken for that directory. The calls go past it in a
 * way that no library sees, as those of a statically linked program do. */
#define _GNU_SOURCE
#include "common.h"

#include <sys/syscall.h>
#include <sys/wait.h>

static long past(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

/* Runs a shell in a directory that is made past the library. */
static void in_a_directory_made_past(char *script)
{
    int status;
    HOLDS(past(SYS_mkdirat, AT_FDCWD, (long)"sub", 0755, 0) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        HOLDS(past(SYS_chdir, (long)"sub", 0, 0, 0) == 0);
        char *arguments[] = {"sh", "-c", script, NULL};
        execv("/bin/sh", arguments);
        _exit(1);
    }
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    HOLDS(past(SYS_unlinkat, AT_FDCWD, (long)"sub", AT_REMOVEDIR, 0) == 0);
}

int main(int argc, char **argv)
{
    static char path[64], place[4096], here[4096];
    HOLDS(argc >= 2 && chdir(argv[1]) == 0);
    HOLDS(mkdir("d", 0755) == 0 && chdir("d") == 0 && getcwd(here, sizeof here));
    int fd = open("data", O_CREAT | O_WRONLY, 0600);
    HOLDS(fd >= 0 && write(fd, "precious", 8) == 8 && close(fd) == 0);
    in_a_directory_made_past("ls -A; test \"$(basename \"$PWD\")\" != d; touch made; rm -rf ./*; rm -rf \"$PWD\"/*");
    HOLDS(access("data", F_OK) == 0);

    /* The working directory of another process is no link that the library follows. */
    sprintf(path, "/proc/%d/cwd/sub", getpid());
    HOLDS(mkdir(path, 0755) == 0);
    fd = open(path, O_RDONLY | O_DIRECTORY);
    HOLDS(fd >= 0);
    sprintf(path, "/proc/self/fd/%d", fd);
    HOLDS(readlink(path, place, sizeof place) > 0 && strcmp(place, here) != 0);
    HOLDS(faccessat(fd, "data", F_OK, 0) == -1 && errno == ENOENT);
    HOLDS(unlinkat(fd, "data", 0) == -1 && errno == ENOENT && close(fd) == 0);
    sprintf(path, "/proc/%d/cwd/sub", getpid());
    HOLDS(rmdir(path) == 0);
    HOLDS(access("data", F_OK) == 0);
    puts("whole");
    return 0;
}
