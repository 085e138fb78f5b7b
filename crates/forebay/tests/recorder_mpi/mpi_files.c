/* Every way to read and write through MPI-IO, a known number of times, on any number of ranks.
 * mpi_files DIR [PREFIX]: one file that all ranks share, one file per rank, one file of the first two ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int error, const char *what) {
    if (error != MPI_SUCCESS) {
        fprintf(stderr, "%s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}
#define TRY(call) check(call, #call)

enum { N = 1000 };
static int rank, size;
static char buffer[8 * N], back[8 * N];

static void shared_file(const char *prefix, const char *dir) {
    char path[4096];
    MPI_File file;
    MPI_Request request;
    MPI_Info info;
    snprintf(path, sizeof path, "%s%s/shared", prefix, dir);
    TRY(MPI_Info_create(&info));
    TRY(MPI_Info_set(info, "cb_nodes", "1"));
    TRY(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    MPI_Info_free(&info);
    TRY(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    MPI_Offset at = (MPI_Offset)rank * N;
    /* Explicit offsets: 2 independent writes, 1 collective, 1 split, 1 + 1 without blocking. */
    TRY(MPI_File_write_at(file, at, buffer, N, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_at(file, at, buffer, N / 8, MPI_DOUBLE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_at_all(file, at, buffer, N, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_at_all_begin(file, at, buffer, N, MPI_BYTE));
    TRY(MPI_File_write_at_all_end(file, buffer, MPI_STATUS_IGNORE));
    TRY(MPI_File_iwrite_at(file, at, buffer, 10, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_iwrite_at_all(file, at, buffer, 10, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    TRY(MPI_File_sync(file));
    /* The same as reads, after one switch of direction. */
    TRY(MPI_File_read_at(file, at, back, N, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_read_at_all(file, at, back, N, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_read_at_all_begin(file, at, back, N, MPI_BYTE));
    TRY(MPI_File_read_at_all_end(file, back, MPI_STATUS_IGNORE));
    TRY(MPI_File_iread_at(file, at, back, 10, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_iread_at_all(file, at, back, 10, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (memcmp(buffer, back, N) != 0)
        check(1, "comparison");
    TRY(MPI_File_close(&file));
}

/* Individual pointer with a strided view: 100 blocks of 8 bytes, as many ranks apart. */
static void strided_file(const char *dir) {
    char path[4096];
    MPI_File file;
    MPI_Request request;
    MPI_Datatype stripe;
    snprintf(path, sizeof path, "%s/strided", dir);
    TRY(MPI_Type_vector(100, 1, size, MPI_DOUBLE, &stripe));
    TRY(MPI_Type_commit(&stripe));
    TRY(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    TRY(MPI_File_set_view(file, 8 * rank, MPI_DOUBLE, stripe, "native", MPI_INFO_NULL));
    TRY(MPI_File_write_all(file, buffer, 100, MPI_DOUBLE, MPI_STATUS_IGNORE));
    TRY(MPI_File_seek(file, 0, MPI_SEEK_SET));
    TRY(MPI_File_read_all(file, back, 100, MPI_DOUBLE, MPI_STATUS_IGNORE));
    TRY(MPI_File_seek(file, 0, MPI_SEEK_SET));
    TRY(MPI_File_read(file, back, 100, MPI_DOUBLE, MPI_STATUS_IGNORE));
    TRY(MPI_File_seek(file, 0, MPI_SEEK_SET));
    TRY(MPI_File_read_all_begin(file, back, 50, MPI_DOUBLE));
    TRY(MPI_File_read_all_end(file, back, MPI_STATUS_IGNORE));
    TRY(MPI_File_iread(file, back, 25, MPI_DOUBLE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_iread_all(file, back, 25, MPI_DOUBLE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* A memory type with holes moves what it holds: 100 doubles out of 200. */
    TRY(MPI_File_seek(file, 0, MPI_SEEK_SET));
    MPI_Datatype every_other;
    TRY(MPI_Type_vector(100, 1, 2, MPI_DOUBLE, &every_other));
    TRY(MPI_Type_commit(&every_other));
    TRY(MPI_File_write_all(file, buffer, 1, every_other, MPI_STATUS_IGNORE));
    TRY(MPI_File_close(&file));
    MPI_Type_free(&every_other);
    MPI_Type_free(&stripe);
}

/* One file per rank: plain writes (one of nothing), a split one, without blocking at either pointer. Two ranks that
 * write without blocking at the shared pointer may hang in Open MPI 4.1, so each does it alone. */
static void own_file(const char *dir) {
    char path[4096];
    MPI_File file;
    MPI_Request request;
    snprintf(path, sizeof path, "%s/own.%d", dir, rank);
    TRY(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    for (int i = 0; i <= rank; i++)
        TRY(MPI_File_write(file, buffer, 500, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_all_begin(file, buffer, 100, MPI_BYTE));
    TRY(MPI_File_write_all_end(file, buffer, MPI_STATUS_IGNORE));
    TRY(MPI_File_iwrite(file, buffer, 200, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_iwrite_all(file, buffer, 200, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_iwrite_shared(file, buffer, 300, MPI_BYTE, &request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_File_write(file, buffer, 0, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_close(&file));
}

/* A file of the first two ranks, through the shared pointer. */
static void file_of_two(const char *dir) {
    char path[4096];
    MPI_File file;
    MPI_Comm two;
    TRY(MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &two));
    if (two == MPI_COMM_NULL)
        return;
    snprintf(path, sizeof path, "%s/two", dir);
    TRY(MPI_File_open(two, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    TRY(MPI_File_write_shared(file, buffer, 300, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_ordered(file, buffer, 300, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_write_ordered_begin(file, buffer, 300, MPI_BYTE));
    TRY(MPI_File_write_ordered_end(file, buffer, MPI_STATUS_IGNORE));
    TRY(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    TRY(MPI_File_read_shared(file, back, 300, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_read_ordered(file, back, 300, MPI_BYTE, MPI_STATUS_IGNORE));
    TRY(MPI_File_read_ordered_begin(file, back, 300, MPI_BYTE));
    TRY(MPI_File_read_ordered_end(file, back, MPI_STATUS_IGNORE));
    TRY(MPI_File_close(&file));
    MPI_Comm_free(&two);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(buffer, 'a' + rank, sizeof buffer);
    if (argc < 2)
        check(1, "usage: mpi_files DIR [PREFIX]");
    shared_file(argc > 2 ? argv[2] : "", argv[1]);
    strided_file(argv[1]);
    own_file(argv[1]);
    file_of_two(argv[1]);
    MPI_Finalize();
    return 0;
}
