/* Reads a file that another client has just made longer. Rank 0 has looked at its size before.
 * usage: grown FILE SAME-FILE-OF-THE-OTHER-CLIENT [HINT VALUE]... Every rank prints how many bytes it got. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES = 1000, BYTES = 16 };

int main(int argc, char **argv) {
    static char all[2 * PIECES * BYTES], mine[PIECES * BYTES];
    int rank, count;
    struct stat facts;
    MPI_File file;
    MPI_Info hints;
    MPI_Datatype block, tile;
    MPI_Status status;
    if (argc < 3 || argc % 2 == 0) return 2;
    MPI_Init(&argc, &argv);
    MPI_Info_create(&hints);
    for (int hint = 3; hint < argc; hint += 2) MPI_Info_set(hints, argv[hint], argv[hint + 1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file);
    MPI_Type_contiguous(BYTES, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, 2 * BYTES, &tile);
    MPI_Type_commit(&tile);
    MPI_File_set_view(file, rank * BYTES, MPI_BYTE, tile, "native", MPI_INFO_NULL);
    if (rank == 0) {
        int other = open(argv[2], O_WRONLY);
        stat(argv[1], &facts);
        memset(all, 'g', sizeof all);
        if (facts.st_size != 0 || write(other, all, sizeof all) != sizeof all) return 3;
        close(other);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_all(file, mine, sizeof mine, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    printf("%d bytes\n", memchr(mine, 0, sizeof mine) ? 0 : count);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
