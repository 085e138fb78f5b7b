/* Two ranks write a MiB together: pieces of 16 bytes, in turns. */
#include <mpi.h>

enum { PIECE = 16, BYTES = 1 << 20 };

int main(int argc, char **argv)
{
    static char mine[BYTES / 2];
    int rank, ranks;
    MPI_Datatype pieces;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2 || ranks != 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < BYTES / 2; i++)
        mine[i] = (char)(i / 7 + 64 * rank);
    MPI_Type_vector(BYTES / 2 / PIECE, PIECE, 2 * PIECE, MPI_CHAR, &pieces);
    MPI_Type_commit(&pieces);
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_File_set_view(file, rank * PIECE, MPI_CHAR, pieces, "native", MPI_INFO_NULL);
    if (MPI_File_write_all(file, mine, BYTES / 2, MPI_CHAR, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_File_close(&file);
    MPI_Type_free(&pieces);
    MPI_Finalize();
    return 0;
}
