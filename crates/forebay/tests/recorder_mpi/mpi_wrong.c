/* What a program should not do, and may survive: mpi_wrong FILE */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_File file = MPI_FILE_NULL;
    char byte = 0;
    int level;
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    /* A file that is not there; reads and writes that fail. */
    if (MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS)
        return 3;
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    if (MPI_File_write(file, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return 4;
    if (MPI_File_read_at(file, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS)
        return 5;
    MPI_File_close(&file);
    MPI_Query_thread(&level);
    MPI_Finalize();
    return 0;
}
