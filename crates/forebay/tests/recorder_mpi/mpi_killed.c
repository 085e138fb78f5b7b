/* Writes 8 bytes at a time and notes how many calls have come back, until it is killed:
 * mpi_killed FILE PROGRESS MICROSECONDS */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static void kill_myself(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
    MPI_File file;
    if (argc != 4)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(long)) != 0)
        return 3;
    volatile long *progress = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (progress == MAP_FAILED)
        return 4;
    struct itimerval after = {.it_value = {.tv_usec = atol(argv[3])}};
    signal(SIGALRM, kill_myself);
    setitimer(ITIMER_REAL, &after, NULL);
    for (long n = 0;; *progress = ++n)
        if (MPI_File_write_at(file, 8 * (n % 1000), &n, 8, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 5;
}
