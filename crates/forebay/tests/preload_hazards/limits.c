/* Few descriptors, and descriptors at the limit. */
#define _GNU_SOURCE
#include "common.h"
#include <dirent.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    struct rlimit limit;
    HOLDS(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fds[64], count;

    limit.rlim_cur = 24;
    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    use_file("under the limit");
    for (count = 0; count < 64; count++) {
        fds[count] = open("many", O_CREAT | O_RDWR, 0600);
        if (fds[count] < 0)
            break;
    }
    HOLDS(errno == EMFILE && count >= 16);
    struct stat st;
    HOLDS(opendir(".") == NULL && errno == EMFILE);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    use_file("again");

    /* A number above the table of known descriptors, and the last one there may be. */
    int high = 70000 < limit.rlim_max ? 70000 : (int)limit.rlim_max - 1;
    limit.rlim_cur = high + 1;
    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    HOLDS(mkdir("directory", 0700) == 0);
    int dir = open("directory", O_RDONLY | O_DIRECTORY);
    HOLDS(dup2(dir, high) == high);
    close(dir);
    int fd = openat(high, "file", O_CREAT | O_RDWR, 0600);
    HOLDS(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    HOLDS(fstatat(high, "file", &st, 0) == 0 && st.st_size == 1);
    HOLDS(fchdir(high) == 0);
    use_file("here");
    HOLDS(unlinkat(high, "file", 0) == 0);
    HOLDS(close(high) == 0);

    /* A number is a directory outside, then one inside, then outside again. */
    HOLDS(chdir("..") == 0);
    HOLDS(close(open("directory/inside", O_CREAT | O_WRONLY, 0600)) == 0);
    for (int round = 0; round < 3; round++) {
        int first = open("/", O_RDONLY | O_DIRECTORY);
        HOLDS(faccessat(first, "inside", F_OK, 0) == -1 && errno == ENOENT);
        HOLDS(faccessat(first, "proc", F_OK, 0) == 0);
        DIR *stream = fdopendir(first);
        HOLDS(stream && closedir(stream) == 0);
        int second = open("directory", O_RDONLY | O_DIRECTORY);
        HOLDS(second == first);
        HOLDS(faccessat(second, "inside", F_OK, 0) == 0);
        close(second);
    }
    HOLDS(unlink("directory/inside") == 0);
    HOLDS(rmdir("directory") == 0 && unlink("many") == 0);
    puts("whole");
    return 0;
}
