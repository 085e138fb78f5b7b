/* A three-dimensional array of ints, divided in blocks, written and read collectively: the benchmark of SC'08.
 *
 * usage: coll_perf FILE NX NY NZ PX PY PZ ROUNDS
 * N: ints of the array, P: processes in each direction (0: as equal as possible). A `%d` in FILE becomes the rank, for ranks that
 * see the file by different mounts.
 *
 * Prints `write` and `read` with the seconds of each round, the slowest rank's, file opened anew in each round. Ends with 1 if a
 * rank reads anything else than what was written. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void fail(const char *what, int result) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(result, text, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One call, with the view set before and the file closed after it. Returns the seconds of the slowest rank, open and close included:
 * a file system may write then. */
static double transfer(const char *path, MPI_Datatype block, int *mine, int ints, int writes) {
    MPI_File file;
    double begin, seconds;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    int result = MPI_File_open(MPI_COMM_WORLD, path, writes ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    if (result) fail("open", result);
    MPI_File_set_view(file, 0, MPI_INT, block, "native", MPI_INFO_NULL);
    result = writes ? MPI_File_write_all(file, mine, ints, MPI_INT, MPI_STATUS_IGNORE)
                    : MPI_File_read_all(file, mine, ints, MPI_INT, MPI_STATUS_IGNORE);
    if (result) fail(writes ? "write" : "read", result);
    MPI_File_close(&file);
    seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* The int at a place of this process' block, in a round. */
static int expected(int at, int round) {
    return (int)((unsigned)at * 2654435761u) ^ (rank << 24) ^ round;
}

int main(int argc, char **argv) {
    int all[3], grid[3], mine[3], first[3], rest, ints = 1, rounds;
    char path[4096];
    MPI_Datatype block;
    if (argc != 9) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, argv[1], rank);
    rounds = atoi(argv[8]);
    for (int i = 0; i < 3; i++) {
        all[i] = atoi(argv[2 + i]);
        grid[i] = atoi(argv[5 + i]);
    }
    MPI_Dims_create(size, 3, grid);
    rest = rank;
    for (int i = 2; i >= 0; i--) {
        int here = rest % grid[i];
        rest /= grid[i];
        first[i] = (int)((long)all[i] * here / grid[i]);
        mine[i] = (int)((long)all[i] * (here + 1) / grid[i]) - first[i];
        ints *= mine[i];
    }
    MPI_Type_create_subarray(3, all, mine, first, MPI_ORDER_C, MPI_INT, &block);
    MPI_Type_commit(&block);
    int *values = malloc(sizeof(int) * (size_t)ints), wrong = 0;
    double *seconds[2] = {malloc(sizeof(double) * rounds), malloc(sizeof(double) * rounds)};
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < ints; i++) values[i] = expected(i, round);
        seconds[0][round] = transfer(path, block, values, ints, 1);
        memset(values, 0, sizeof(int) * (size_t)ints);
        seconds[1][round] = transfer(path, block, values, ints, 0);
        for (int i = 0; i < ints; i++) wrong |= values[i] != expected(i, round);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int what = 0; rank == 0 && what < 2; what++) {
        printf(what ? "read" : "write");
        for (int round = 0; round < rounds; round++) printf(" %.6f", seconds[what][round]);
        printf("\n");
    }
    if (rank == 0 && wrong) fprintf(stderr, "what was read is not what was written\n");
    MPI_Finalize();
    return wrong;
}
