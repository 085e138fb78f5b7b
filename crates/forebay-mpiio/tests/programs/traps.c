/* What the layer has to leave alone, or to take over as a whole.
 * usage: traps FILE prefix     writes to "sfs:FILE" in the working directory
 *        traps FILE large      data of a type that was made with large counts (as a view MPICH 4.0 itself takes none)
 *        traps FILE nested     the same within a type that was not
 *        traps FILE narrow     columns of an array by a view whose tiles overlap, by the file pointer, in three calls
 *        traps FILE lower      a view with a type that has another lower bound, collectively and then independently
 *        traps FILE split      a split write for which there is no space, and one for which there is
 *        traps FILE second     a second split write begins before the first one has ended
 *        traps FILE raw        data of a type that was not committed
 *        traps FILE hints      hints of rank 0 alone: locks with the view, a method afterwards
 *        traps FILE jump       a handler leaves the error of a write to a file that was opened for reading by longjmp */
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { PIECES = 2000, BYTES = 32 };

static jmp_buf back;
static void leap(MPI_File *file, int *code, ...) {
    longjmp(back, 1);
}

/* Returns whether the handler was called. */
static int jump(const char *name, const char *bytes) {
    volatile int jumped = 0;
    MPI_File file;
    MPI_Errhandler handler;
    MPI_File_create_errhandler(leap, &handler);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_set_errhandler(file, handler);
    if (setjmp(back)) jumped = 1;
    else MPI_File_write_all(file, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    return jumped;
}

int main(int argc, char **argv) {
    static char mine[PIECES * BYTES];
    char name[300];
    int rank, size, failed = 0;
    MPI_File file;
    MPI_Datatype tile, block, inner;
    (void)inner;
    MPI_Status status;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[2], "jump") && !jump(argv[1], mine)) printf("rank %d: no error\n", rank);
    snprintf(name, sizeof name, "%s%s", strcmp(argv[2], "prefix") ? "" : "sfs:", argv[1]);
    failed = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    if (!failed) {
        MPI_Type_contiguous(BYTES, MPI_BYTE, &block);
        MPI_Type_create_resized(block, 0, (MPI_Aint)BYTES * size, &tile);
#if MPI_VERSION >= 4
        if (!strcmp(argv[2], "large")) MPI_Type_contiguous_c(BYTES, MPI_BYTE, &block);
        if (!strcmp(argv[2], "nested")) {
            MPI_Type_contiguous_c(BYTES / 2, MPI_BYTE, &inner);
            MPI_Type_contiguous(2, inner, &block);
            MPI_Type_free(&inner);
        }
#endif
        if (strcmp(argv[2], "raw")) MPI_Type_commit(&block);
        MPI_Type_commit(&tile);
        MPI_File_set_view(file, (MPI_Offset)rank * BYTES, MPI_BYTE, tile, "native", MPI_INFO_NULL);
        memset(mine, 'a' + rank, sizeof mine);
        if (!strcmp(argv[2], "hints")) {
            MPI_Info info;
            MPI_Info_create(&info);
            if (rank == 0) MPI_Info_set(info, "forebay_locks", "token");
            MPI_File_set_view(file, (MPI_Offset)rank * BYTES, MPI_BYTE, tile, "native", info);
            if (rank == 0) MPI_Info_set(info, "forebay_partition", "even");
            MPI_File_write_all(file, mine, PIECES, block, &status);
            MPI_File_seek(file, 0, MPI_SEEK_SET);
            MPI_File_set_info(file, info);
            MPI_Info_free(&info);
        }
        if (!strcmp(argv[2], "split")) {
            struct rlimit limit, small;
            signal(SIGXFSZ, SIG_IGN);
            getrlimit(RLIMIT_FSIZE, &limit);
            small = limit;
            small.rlim_cur = 4096;
            setrlimit(RLIMIT_FSIZE, &small);
            failed = !MPI_File_write_all_begin(file, mine, sizeof mine, MPI_BYTE);
            MPI_File_write_all_end(file, mine, &status);
            setrlimit(RLIMIT_FSIZE, &limit);
            MPI_File_seek(file, 0, MPI_SEEK_SET);
            failed |= MPI_File_write_all_begin(file, mine, sizeof mine, MPI_BYTE);
            failed |= MPI_File_write_all_end(file, mine, &status);
        } else if (!strcmp(argv[2], "narrow") || !strcmp(argv[2], "lower")) {
            int is_narrow = !strcmp(argv[2], "narrow");
            MPI_Type_vector(6, 1, 2 * size, MPI_INT, &inner);
            MPI_Type_free(&tile);
            MPI_Type_create_resized(inner, is_narrow ? 0 : 8, is_narrow ? 4 : 48 * size, &tile);
            MPI_Type_free(&inner);
            MPI_Type_commit(&tile);
            MPI_File_set_view(file, (MPI_Offset)rank * 8, MPI_INT, tile, "native", MPI_INFO_NULL);
            for (int i = 0; i < 100; i++) memcpy(mine + 4 * i, &(int){100 * rank + i}, 4);
            failed = MPI_File_write_all(file, mine, 6, MPI_INT, &status);
            if (is_narrow) failed |= MPI_File_write_all(file, mine + 24, 2, MPI_INT, &status);
            if (is_narrow) failed |= MPI_File_write_all(file, mine + 32, 4, MPI_INT, &status);
            /* One after the other: what MPICH writes at the same time differs from run to run. */
            for (int turn = 0; turn < size && !is_narrow; turn++) {
                if (turn == rank) failed |= MPI_File_write(file, mine + 24, 3, MPI_INT, &status);
                MPI_Barrier(MPI_COMM_WORLD);
            }
        } else if (!strcmp(argv[2], "second")) {
            failed = MPI_File_write_all_begin(file, mine, sizeof mine, MPI_BYTE);
            failed |= !MPI_File_write_all_begin(file, name, 1, MPI_BYTE);
            failed |= MPI_File_write_all_end(file, mine, &status);
        } else {
            failed = MPI_File_write_all(file, mine, PIECES, block, &status);
        }
        MPI_File_close(&file);
    }
    printf("rank %d: %s\n", rank, failed ? "failed" : "done");
    MPI_Finalize();
    return 0;
}
