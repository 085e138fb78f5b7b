/* A file of which each rank has every size-th piece, by its view, and an error handler that looks at the file and counts. */
#include <mpi.h>
#include <string.h>

enum { PIECES = 2000, BYTES = 32 };

static char mine[PIECES * BYTES];
static int heard;

static void hear(MPI_File *file, int *code, ...) {
    MPI_Offset size;
    heard += MPI_File_get_size(*file, &size) == MPI_SUCCESS; /* it is open still, and a handler may call MPI */
}

static MPI_File open_pieces(const char *path, int mode) {
    MPI_File file;
    MPI_Datatype tile, block;
    MPI_Errhandler handler;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file);
    MPI_File_create_errhandler(hear, &handler);
    MPI_File_set_errhandler(file, handler);
    MPI_Type_contiguous(BYTES, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)BYTES * size, &tile);
    MPI_Type_commit(&tile);
    MPI_File_set_view(file, (MPI_Offset)rank * BYTES, MPI_BYTE, tile, "native", MPI_INFO_NULL);
    memset(mine, rank + 1, sizeof mine);
    return file;
}

/* The class of what a call gave, in words. */
static const char *told(int result) {
    int class = 0;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &class);
    return class == MPI_ERR_NO_SPACE ? "no space" : class ? "error" : "success";
}
