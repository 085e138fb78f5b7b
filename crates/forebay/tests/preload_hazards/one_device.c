/* Everything in the buffer shows one device, by path, by descriptor and in listings, also to a user who may not look into
 * the storage: a program that the superuser has started, and that has changed its user before it first looks. */
#define _GNU_SOURCE
#include "common.h"
#include <dirent.h>
#include <grp.h>

enum { NOBODY = 65534 };

static void check(const char *name, const struct stat *root)
{
    struct stat by_path, by_fd;
    int fd = open(name, O_RDONLY);
    HOLDS(fd >= 0 && lstat(name, &by_path) == 0 && fstat(fd, &by_fd) == 0 && close(fd) == 0);
    HOLDS(by_path.st_dev == root->st_dev);
    HOLDS(by_fd.st_dev == by_path.st_dev && by_fd.st_ino == by_path.st_ino);
    DIR *listing = opendir(".");
    struct dirent *entry;
    int seen = 0;
    HOLDS(listing != NULL);
    while ((entry = readdir(listing)) != NULL)
        if (strcmp(entry->d_name, name) == 0) {
            HOLDS(entry->d_ino == by_path.st_ino);
            seen++;
        }
    HOLDS(seen == 1 && closedir(listing) == 0);
}

int main(int argc, char **argv)
{
    struct stat root;
    HOLDS(argc >= 2 && chdir(argv[1]) == 0);
    int fd = open("made by root", O_CREAT | O_WRONLY, 0644);
    HOLDS(fd >= 0 && close(fd) == 0 && mkdir("public", 0777) == 0 && chmod("public", 0777) == 0);
    HOLDS(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    HOLDS(stat(".", &root) == 0);
    check("made by root", &root);
    check("public", &root);
    HOLDS(chdir("public") == 0 && mkdir("d", 0755) == 0);
    fd = open("f", O_CREAT | O_WRONLY, 0644);
    HOLDS(fd >= 0 && close(fd) == 0);
    check("d", &root);
    check("f", &root);
    puts("whole");
    return 0;
}
