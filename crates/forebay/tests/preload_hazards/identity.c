/* A process that changes its user: what it does is judged by the new one. Needs the superuser. */
#define _GNU_SOURCE
#include "common.h"
#include <dirent.h>
#include <grp.h>
#include <sys/wait.h>

enum { NOBODY = 65534, GROUP = 4242 };

static void in_child(void (*act)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        act();
        _exit(0);
    }
    HOLDS(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void check_as_nobody(void)
{
    struct stat st;
    HOLDS(open("secret", O_RDONLY) == -1 && errno == EACCES);
    HOLDS(open("private/x", O_CREAT | O_WRONLY, 0600) == -1 && errno == EACCES);
    HOLDS(opendir("private") == NULL && errno == EACCES);
    HOLDS(mkdir("not mine", 0700) == -1 && errno == EACCES);
    HOLDS(chmod("secret", 0777) == -1 && errno == EPERM);
    HOLDS(unlink("secret") == -1 && errno == EACCES);
    int fd = open("public/mine", O_CREAT | O_WRONLY, 0600);
    HOLDS(fd >= 0 && close(fd) == 0);
    HOLDS(stat("public/mine", &st) == 0 && st.st_uid == NOBODY);
    HOLDS(unlink("public/mine") == 0);
}

static void drop(void)
{
    use_file("as root");
    HOLDS(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    check_as_nobody();
}

static void there_and_back(void)
{
    for (int i = 0; i < 3; i++) {
        HOLDS(seteuid(NOBODY) == 0);
        HOLDS(open("secret", O_RDONLY) == -1 && errno == EACCES);
        HOLDS(access("secret", R_OK) == 0);                       /* the real user */
        HOLDS(eaccess("secret", R_OK) == -1 && errno == EACCES);  /* the effective one */
        HOLDS(seteuid(0) == 0);
        int fd = open("secret", O_RDONLY);
        HOLDS(fd >= 0 && close(fd) == 0);
    }
}

static void groups(void)
{
    gid_t group = GROUP;
    use_file("as root");
    HOLDS(setgroups(1, &group) == 0 && setresuid(NOBODY, NOBODY, 0) == 0);
    int fd = open("for the group", O_RDONLY);
    HOLDS(fd >= 0 && close(fd) == 0);
    HOLDS(setresuid(0, 0, 0) == 0 && setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0);
    HOLDS(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    HOLDS(open("for the group", O_RDONLY) == -1 && errno == EACCES);
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    umask(0);
    HOLDS(close(open("secret", O_CREAT | O_WRONLY, 0600)) == 0);
    HOLDS(mkdir("private", 0700) == 0 && mkdir("public", 01777) == 0);
    HOLDS(close(open("for the group", O_CREAT | O_WRONLY, 0640)) == 0 && chown("for the group", 0, GROUP) == 0);
    in_child(drop);
    in_child(there_and_back);
    in_child(groups);
    puts("whole");
    return 0;
}
