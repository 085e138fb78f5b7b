/* Calls that could take an aggregator long, or much memory. Rank 0 is the only aggregator.
 * usage: bounds FILE same         all ranks read the same 32 MiB, in pieces
 *        bounds FILE irregular    each rank writes 40,000 pieces at irregular distances
 *        bounds FILE far          each rank writes three pieces, terabytes apart
 * Rank 0 prints how many MiB its memory has grown more than that of rank 1, and every rank whether it reads what it should. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 40000, BYTES = 8, PIECE = 512, MIB = 1 << 20 };

static int rank, size;

static long peak_kib(void) {
    char line[200];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &kib);
    fclose(status);
    return kib;
}

static MPI_File open_file(const char *path, const char *buffer_bytes) {
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "1");
    MPI_Info_set(info, "cb_buffer_size", buffer_bytes);
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file)) abort();
    MPI_Info_free(&info);
    return file;
}

/* Bytes `bytes` through the view: written if `writes`, then read, or only read. Returns whether the bytes are as expected. */
static int pass(MPI_File file, MPI_Datatype tile, MPI_Offset begin, int bytes, int writes) {
    char *mine = malloc(bytes);
    int right = 1;
    MPI_File_set_view(file, begin, MPI_BYTE, tile, "native", MPI_INFO_NULL);
    memset(mine, writes ? 'a' + rank : 0, bytes);
    if (writes) {
        if (MPI_File_write_all(file, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE)) abort();
        MPI_File_sync(file);
        memset(mine, 0, bytes);
        MPI_File_seek(file, 0, MPI_SEEK_SET);
    }
    if (MPI_File_read_all(file, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE)) abort();
    for (int i = 0; i < bytes; i++) right &= mine[i] == (writes ? 'a' + rank : 's');
    free(mine);
    return right;
}

int main(int argc, char **argv) {
    int right;
    long before, growth[64];
    MPI_File file;
    MPI_Datatype block, tile;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[2], "same")) {
        if (rank == 0) {
            FILE *all = fopen(argv[1], "w");
            char *bytes = memset(malloc(MIB), 's', MIB);
            for (int i = 0; i < 64; i++) fwrite(bytes, MIB, 1, all);
            fclose(all);
            free(bytes);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Type_contiguous(PIECE, MPI_BYTE, &block);
        MPI_Type_create_resized(block, 0, 2 * PIECE, &tile);
        MPI_Type_commit(&tile);
        file = open_file(argv[1], "67108864");
        before = peak_kib();
        right = pass(file, tile, 0, 32 * MIB, 0);
    } else if (!strcmp(argv[2], "irregular")) {
        static MPI_Aint places[PIECES];
        static int lengths[PIECES];
        MPI_Aint at = 0;
        for (int i = 0; i < PIECES; i++) {
            places[i] = at + rank * BYTES;
            lengths[i] = BYTES;
            at += size * BYTES + (i * 7919 % 13) * 4;
        }
        MPI_Type_create_hindexed(PIECES, lengths, places, MPI_BYTE, &tile);
        MPI_Type_commit(&tile);
        file = open_file(argv[1], "65536");
        before = peak_kib();
        right = pass(file, tile, 0, PIECES * BYTES, 1);
    } else {
        MPI_Aint far = (MPI_Aint)2 << 40;
        MPI_Type_contiguous(PIECE, MPI_BYTE, &block);
        MPI_Type_create_resized(block, 0, far, &tile);
        MPI_Type_commit(&tile);
        file = open_file(argv[1], "4096");
        before = peak_kib();
        right = pass(file, tile, (MPI_Offset)rank * PIECE, 3 * PIECE, 1);
    }
    before = peak_kib() - before;
    MPI_Gather(&before, 1, MPI_LONG, growth, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("more memory: %ld MiB\n", (growth[0] - growth[1]) / 1024);
    printf("rank %d: %s\n", rank, right ? "right" : "wrong");
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
