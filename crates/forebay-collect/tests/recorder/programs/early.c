/* A library that writes before main and after it. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void early(void)
{
    int fd = open("early-out", O_CREAT | O_WRONLY, 0600);
    if (write(fd, "before main.", 12) != 12)
        _exit(7);
    close(fd);
}

__attribute__((destructor)) static void late(void)
{
    int fd = open("late-out", O_CREAT | O_WRONLY, 0600);
    if (write(fd, "late", 4) != 4)
        _exit(7);
    close(fd);
}
