/* A tool in the manner of mpiP: it stands between the program and MPI, and calls on by PMPI's names. */
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_File_write(MPI_File file, const void *buffer, int count, MPI_Datatype type, MPI_Status *status) {
    calls++;
    return PMPI_File_write(file, buffer, count, type, status);
}

int MPI_Finalize(void) {
    printf("the tool saw %d writes\n", calls);
    return PMPI_Finalize();
}
