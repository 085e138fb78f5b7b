/* What becomes of a file after its calls.
 * usage: closing FILE late     the file system tells that it could not write only when a descriptor is closed: each rank prints what
 *                              MPI_File_close gives
 *        closing FILE moved    another file takes the path between two calls, the second one with a new hint: both write to FILE.moved
 *        closing FILE linked   the same with FILE a link, which FILE.next replaces, and more aggregators
 *        closing FILE many     1500 more files are open at a time, FILE.0 and so on, each with a collective write */
#define _GNU_SOURCE
#include "pieces.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DESCRIPTORS = 1024, MANY = 1500 };

/* This program's versions of what libraries call: a close of what was written to fails, once, as write-back does. */
static int is_late, was_written[DESCRIPTORS];

ssize_t pwrite64(int fd, const void *from, size_t bytes, off_t at) {
    ssize_t written = syscall(SYS_pwrite64, fd, from, bytes, at);
    if (written > 0 && fd < DESCRIPTORS) was_written[fd] = 1;
    return written;
}

int close(int fd) {
    int fails = is_late && fd >= 0 && fd < DESCRIPTORS && was_written[fd];
    int result = syscall(SYS_close, fd);
    if (fd >= 0 && fd < DESCRIPTORS) was_written[fd] = 0;
    if (!fails) return result;
    is_late = 0;
    errno = ENOSPC;
    return -1;
}

static MPI_File many[MANY];

/* Writes to many files, all open at a time: the first error. */
static int write_many(const char *path, int rank) {
    int result = MPI_SUCCESS;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){2 * MANY + 100, 2 * MANY + 100});
    for (int i = 0; i < MANY && result == MPI_SUCCESS; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%d", path, i);
        result = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &many[i]);
    }
    for (int i = 0; i < MANY && result == MPI_SUCCESS; i++)
        result = MPI_File_write_at_all(many[i], rank * BYTES, mine, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < MANY && result == MPI_SUCCESS; i++) result = MPI_File_close(&many[i]);
    return result;
}

int main(int argc, char **argv) {
    int rank, result;
    MPI_File file;
    MPI_Info info;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    file = open_pieces(argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR);
    result = MPI_File_write_all(file, mine, sizeof mine, MPI_BYTE, MPI_STATUS_IGNORE);
    if (!strcmp(argv[2], "many")) result = write_many(argv[1], rank);
    int is_linked = !strcmp(argv[2], "linked");
    if (is_linked || !strcmp(argv[2], "moved")) {
        if (rank == 0) {
            char other[4096];
            snprintf(other, sizeof other, "%s.%s", argv[1], is_linked ? "next" : "moved");
            if (rename(is_linked ? other : argv[1], is_linked ? argv[1] : other)) perror("rename");
            if (!is_linked) fclose(fopen(argv[1], "w"));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Info_create(&info);
        MPI_Info_set(info, "cb_buffer_size", "65536");
        if (is_linked) MPI_Info_set(info, "cb_config_list", "*:3");
        if (is_linked) MPI_Info_set(info, "cb_nodes", "3");
        MPI_File_set_info(file, info);
        result = MPI_File_write_all(file, mine, sizeof mine, MPI_BYTE, MPI_STATUS_IGNORE);
        if (result == MPI_SUCCESS) result = MPI_File_sync(file);
    }
    if (result == MPI_SUCCESS) {
        is_late = !strcmp(argv[2], "late");
        result = MPI_File_close(&file);
    }
    printf("rank %d: %s, heard %d, closed %d\n", rank, told(result), heard, file == MPI_FILE_NULL);
    MPI_Finalize();
    return 0;
}
