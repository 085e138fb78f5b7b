/* MPI-IO of every kind that an MPI library carries out with path calls and descriptors of its own:
 * collective, independent, by view, non-blocking, with shared pointers, on one file by all ranks.
 * Rank 0 prints what was found; the files stay behind for the comparison. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096, ROWS = 64, COLS = 48 };

static int rank, size;

static void must(int code, const char *what)
{
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        printf("rank %d: %s: %s\n", rank, what, text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void say(const char *what, long long value)
{
    long long sum = 0;
    MPI_Reduce(&value, &sum, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s %lld\n", what, sum);
        fflush(stdout);
    }
}

static MPI_File open_all(const char *name, int mode)
{
    MPI_File file;
    must(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file), name);
    return file;
}

static void blocks(void)
{
    int *data = malloc(N * sizeof(int));
    long long wrong = 0;
    MPI_Offset bytes;
    MPI_File file = open_all("blocks", MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (int i = 0; i < N; i++)
        data[i] = rank * N + i;
    must(MPI_File_write_at_all(file, (MPI_Offset)rank * N * sizeof(int), data, N, MPI_INT, MPI_STATUS_IGNORE), "write_at_all");
    must(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % size;
    must(MPI_File_read_at_all(file, (MPI_Offset)other * N * sizeof(int), data, N, MPI_INT, MPI_STATUS_IGNORE), "read_at_all");
    for (int i = 0; i < N; i++)
        wrong += data[i] != other * N + i;
    must(MPI_File_get_size(file, &bytes), "get_size");
    say("blocks: wrong", wrong);
    say("blocks: bytes", rank ? 0 : bytes);
    must(MPI_File_close(&file), "close");
    free(data);
}

static void columns(void)
{
    int sizes[2] = {ROWS, COLS * size}, part[2] = {ROWS, COLS}, at[2] = {0, COLS * rank};
    double *data = malloc(sizeof(double) * ROWS * COLS);
    long long wrong = 0;
    MPI_Datatype type;
    MPI_Type_create_subarray(2, sizes, part, at, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_File file = open_all("columns", MPI_MODE_CREATE | MPI_MODE_RDWR);
    must(MPI_File_set_view(file, 0, MPI_DOUBLE, type, "native", MPI_INFO_NULL), "set_view");
    for (int i = 0; i < ROWS * COLS; i++)
        data[i] = rank + i / 1000.0;
    must(MPI_File_write_all(file, data, ROWS * COLS, MPI_DOUBLE, MPI_STATUS_IGNORE), "write_all");
    memset(data, 0, sizeof(double) * ROWS * COLS);
    must(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    must(MPI_File_read_all(file, data, ROWS * COLS, MPI_DOUBLE, MPI_STATUS_IGNORE), "read_all");
    for (int i = 0; i < ROWS * COLS; i++)
        wrong += data[i] != rank + i / 1000.0;
    say("columns: wrong", wrong);
    must(MPI_File_close(&file), "close");
    MPI_Type_free(&type);
    free(data);
}

static void independent(void)
{
    char line[32];
    MPI_Request request;
    MPI_File file = open_all("independent", MPI_MODE_CREATE | MPI_MODE_WRONLY);
    snprintf(line, sizeof line, "rank %08d of the world\n", rank);
    must(MPI_File_iwrite_at(file, (MPI_Offset)rank * 27, line, 27, MPI_CHAR, &request), "iwrite_at");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    must(MPI_File_close(&file), "close");
    MPI_File own;
    snprintf(line, sizeof line, "own.%d", rank);
    must(MPI_File_open(MPI_COMM_SELF, line, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &own), "open own");
    must(MPI_File_write(own, &rank, 1, MPI_INT, MPI_STATUS_IGNORE), "write own");
    must(MPI_File_set_size(own, 100 + rank), "set_size");
    must(MPI_File_close(&own), "close own");
    int code = MPI_File_open(MPI_COMM_SELF, line, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &own);
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    say("exclusive twice: refused", class == MPI_ERR_FILE_EXISTS);
    code = MPI_File_open(MPI_COMM_SELF, "no-such-file", MPI_MODE_RDONLY, MPI_INFO_NULL, &own);
    MPI_Error_class(code, &class);
    say("missing: refused", class == MPI_ERR_NO_SUCH_FILE);
}

static void shared_pointers(void)
{
    long long mine = rank + 1, found = 0, sum = 0;
    MPI_File file = open_all("shared", MPI_MODE_CREATE | MPI_MODE_RDWR);
    must(MPI_File_write_ordered(file, &mine, 1, MPI_LONG_LONG, MPI_STATUS_IGNORE), "write_ordered");
    must(MPI_File_write_shared(file, &mine, 1, MPI_LONG_LONG, MPI_STATUS_IGNORE), "write_shared");
    must(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2 * size; i++) {
        must(MPI_File_read_at(file, i * 8, &found, 1, MPI_LONG_LONG, MPI_STATUS_IGNORE), "read_at");
        sum += found;
    }
    say("shared: sum", sum);
    must(MPI_File_close(&file), "close");
}

static void old_and_gone(void)
{
    int first = -1;
    MPI_Offset bytes = 0;
    MPI_File file = open_all("old", MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN);
    must(MPI_File_read_at_all(file, 0, &first, 1, MPI_INT, MPI_STATUS_IGNORE), "read old");
    say("old: first", first);
    /* Nobody writes before all have read. */
    MPI_Barrier(MPI_COMM_WORLD);
    must(MPI_File_write_at_all(file, 4 * (rank + 1), &rank, 1, MPI_INT, MPI_STATUS_IGNORE), "write old");
    must(MPI_File_preallocate(file, 65536), "preallocate");
    must(MPI_File_get_size(file, &bytes), "get_size");
    say("old: bytes", rank ? 0 : bytes);
    must(MPI_File_close(&file), "close");
    file = open_all("scratch", MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    must(MPI_File_write_at_all(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE), "write scratch");
    must(MPI_File_close(&file), "close");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        must(MPI_File_delete("unwanted", MPI_INFO_NULL), "delete");
        int class = MPI_SUCCESS;
        MPI_Error_class(MPI_File_delete("unwanted", MPI_INFO_NULL), &class);
        printf("delete twice: %s\n", class == MPI_ERR_NO_SUCH_FILE ? "no such file" : "unexpected");
        FILE *left = fopen("scratch", "r");
        printf("scratch is %s\n", left ? "still there" : "gone");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    blocks();
    columns();
    independent();
    shared_pointers();
    old_and_gone();
    MPI_Finalize();
    return 0;
}
