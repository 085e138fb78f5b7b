/* Two ranks read 1,000 bytes each of a file that rank 1 has extended just before, by a call of its own: rank 0 is in the collective call by
 * then, unless it is slow. Each rank prints how much of it is there, and rank 1 whether it is what it has written.
 * usage: late_write FILE */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1000, PIECE = 10 };

int main(int argc, char **argv) {
    int rank, count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, argv[argc - 1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
    MPI_Datatype piece, every_other;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, 2 * PIECE, &every_other);
    MPI_Type_commit(&every_other);
    MPI_File_set_view(file, rank * PIECE, MPI_BYTE, every_other, "native", MPI_INFO_NULL);
    MPI_File_set_size(file, PIECE * PIECE);

    char written[BYTES], bytes[BYTES] = {0};
    memset(written, 'w', BYTES);
    if (rank == 1) {
        usleep(300000);
        MPI_File_write_at(file, 0, written, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_Status status;
    MPI_File_read_at_all(file, 0, bytes, BYTES, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    printf("rank %d: %d bytes%s\n", rank, count, rank == 1 && memcmp(bytes, written, BYTES) ? ", others" : "");
    MPI_File_close(&file);
    MPI_Type_free(&piece);
    MPI_Type_free(&every_other);
    return MPI_Finalize();
}
