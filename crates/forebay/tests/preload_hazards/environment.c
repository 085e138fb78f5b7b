/* A program that starts others with environments of its own making, from fork and vfork. */
#define _GNU_SOURCE
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static int result_of(pid_t pid)
{
    int status;
    HOLDS(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In the new program: only the buffer has the file. */
static int as_child(const char *dir)
{
    HOLDS(chdir(dir) == 0);
    HOLDS(access("born", F_OK) == 0);
    use_file("of the new program");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return as_child(argv[1]);
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    HOLDS(close(open("born", O_CREAT | O_WRONLY, 0600)) == 0);
    char *command[] = {argv[0], argv[1], "child", NULL};
    char *many[1200];
    for (int i = 0; i < 1199; i++)
        many[i] = "FILLER=x";
    many[1199] = NULL;
    char *none[] = {NULL}, *one[] = {"HOME=/", NULL};
    char *emptied[] = {"LD_PRELOAD=", NULL}, *other[] = {"LD_PRELOAD=libm.so.6", "FOREBAY_BUFFER_X=1", NULL};
    char **environments[] = {none, one, emptied, other, many, environ, NULL};
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execve(argv[0], command, environments[i]);
            _exit(127);
        }
        HOLDS(result_of(pid) == 0);
        pid = vfork();
        if (pid == 0) {
            /* What Python's subprocess does between vfork and exec. */
            int fd = open("born", O_RDONLY);
            if (fd < 0 || dup2(fd, 0) < 0 || chdir("/") != 0)
                _exit(3);
            umask(077);
            execve(argv[0], command, environments[i]);
            _exit(127);
        }
        HOLDS(result_of(pid) == 0);
        HOLDS(access("born", F_OK) == 0);
        HOLDS(posix_spawn(&pid, argv[0], NULL, NULL, command, environments[i]) == 0);
        HOLDS(result_of(pid) == 0);
    }
    /* A child of vfork has set its umask; ours is what it was. */
    umask(022);
    struct stat st;
    HOLDS(close(open("mode", O_CREAT | O_WRONLY, 0666)) == 0 && stat("mode", &st) == 0 && (st.st_mode & 0777) == 0644);
    clearenv();
    pid_t pid = fork();
    if (pid == 0) {
        execv(argv[0], command);
        _exit(127);
    }
    HOLDS(result_of(pid) == 0);
    puts("whole");
    return 0;
}
