/* Walks a tree without leaving its file system. */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdio.h>

static int visit(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about;
    (void)place;
    printf("%s %d\n", path, type);
    return 0;
}

int main(int argc, char **argv)
{
    return argc == 2 ? nftw(argv[1], visit, 10, FTW_MOUNT | FTW_PHYS) : 2;
}
