/* Two ranks write; then rank 1 ends as told: mpi_dies FILE abort|kill */
#include <mpi.h>
#include <signal.h>
#include <string.h>

int main(int argc, char **argv) {
    char block[64] = "";
    int rank;
    MPI_File file;
    if (argc != 3)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    for (int i = 0; i < 100; i++)
        MPI_File_write_at(file, 64 * (i + 100 * rank), block, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && strcmp(argv[2], "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == 1)
        raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}
