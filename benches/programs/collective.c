/* Times of collective writes and reads. Prints one line for each: the pattern, the direction, and seconds of each round,
 * the slowest rank's.
 *
 * usage: collective FILE PATTERN SIZE ROUNDS
 * PATTERN block: a three-dimensional array of SIZE^3 ints, block by block (ROMIO's coll_perf)
 *         small: SIZE small pieces on each rank, dealt out at random (an unstructured mesh, as E3SM's)
 *         lines: rows of SIZE doubles, dealt out one by one
 *         parts: one part of SIZE MiB on each rank
 * Built with WITH_GIO it makes the same accesses by the library GIO, which takes lists of them in place of views. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_GIO
#include <fcntl.h>
#include <gio.h>
#endif

static int rank, size;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static MPI_Datatype block(int n, size_t *bytes) {
    int grid[3] = {0, 0, 0}, all[3] = {n, n, n}, kinds[3], arguments[3], ints;
    MPI_Datatype type;
    MPI_Dims_create(size, 3, grid);
    for (int i = 0; i < 3; i++) {
        kinds[i] = MPI_DISTRIBUTE_BLOCK;
        arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
    }
    MPI_Type_create_darray(size, rank, 3, all, kinds, arguments, grid, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_size(type, &ints);
    *bytes = (size_t)ints;
    return type;
}

static MPI_Datatype small(int pieces, size_t *bytes) {
    int *lengths = malloc(sizeof(int) * pieces), mine = 0;
    MPI_Aint *places = malloc(sizeof(MPI_Aint) * pieces), at = 0;
    uint64_t state = 42;
    MPI_Datatype type;
    for (int i = 0; i < pieces * size; i++) {
        int length = 8 * (1 + (int)(next(&state) % 8));
        int who = (int)(next(&state) % size);
        if (who == rank && mine < pieces) {
            lengths[mine] = length;
            places[mine++] = at;
            *bytes += length;
        }
        at += length;
    }
    MPI_Type_create_hindexed(mine, lengths, places, MPI_BYTE, &type);
    free(lengths);
    free(places);
    return type;
}

static MPI_Datatype lines(int doubles, size_t *bytes) {
    MPI_Datatype row, type;
    int rows = (32 << 20) / 8 / doubles;
    MPI_Aint extent = (MPI_Aint)doubles * 8 * size;
    MPI_Type_contiguous(doubles, MPI_DOUBLE, &row);
    MPI_Type_create_hvector(rows, 1, extent, row, &type);
    *bytes = (size_t)rows * doubles * 8;
    return type;
}

#ifdef WITH_GIO
/* What a rank accesses, in bytes, in the order of its buffer. */
static MPI_Offset count, *offsets, *lengths;

static void add(MPI_Offset at, MPI_Offset length) {
    static MPI_Offset room;
    if (count == room) {
        room = room ? 2 * room : 1024;
        offsets = realloc(offsets, room * sizeof *offsets);
        lengths = realloc(lengths, room * sizeof *lengths);
    }
    offsets[count] = at;
    lengths[count++] = length;
}

/* What `type` describes from `begin` on: one of the types above. */
static void list(MPI_Datatype type, MPI_Offset begin) {
    int ints, places, types, combiner, length;
    MPI_Type_get_envelope(type, &ints, &places, &types, &combiner);
    if (combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_CONTIGUOUS) {
        MPI_Type_size(type, &length);
        add(begin, length);
        return;
    }
    int *i = malloc(sizeof(int) * ints);
    MPI_Aint *a = malloc(sizeof(MPI_Aint) * (places + 1));
    MPI_Datatype of;
    MPI_Type_get_contents(type, ints, places, types, i, a, &of);
    if (combiner == MPI_COMBINER_HVECTOR) {
        for (int n = 0; n < i[0]; n++) list(of, begin + n * a[0]);
    } else if (combiner == MPI_COMBINER_HINDEXED) {
        for (int n = 0; n < i[0]; n++) add(begin + a[n], i[1 + n]);
    } else {
        /* An array in equal blocks: size, rank, directions, then for each direction its size, two more, and the grid. */
        int *all = i + 3, *grid = i + 12, at[3], from[3], to[3];
        at[0] = rank / (grid[1] * grid[2]);
        at[1] = rank / grid[2] % grid[1];
        at[2] = rank % grid[2];
        for (int d = 0; d < 3; d++) {
            int part = (all[d] + grid[d] - 1) / grid[d];
            from[d] = at[d] * part;
            to[d] = from[d] + part < all[d] ? from[d] + part : all[d];
        }
        for (MPI_Offset x = from[0]; x < to[0]; x++)
            for (MPI_Offset y = from[1]; y < to[1]; y++)
                add(begin + ((x * all[1] + y) * all[2] + from[2]) * 4, (to[2] - from[2]) * 4);
    }
    free(i);
    free(a);
}
#endif

/* Seconds of one call. */
static double transfer(const char *path, int is_read, MPI_Offset begin, MPI_Datatype type, void *bytes, size_t length) {
    double start, took;
#ifdef WITH_GIO
    GIO_File file;
    MPI_Offset at = 0, all = length, said;
    (void)begin, (void)type;
    if (GIO_open(MPI_COMM_WORLD, path, O_CREAT | O_RDWR, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (is_read) said = GIO_read_all(file, bytes, count, offsets, lengths, 1, &at, &all);
    else said = GIO_write_all(file, bytes, count, offsets, lengths, 1, &at, &all);
    took = MPI_Wtime() - start;
    GIO_close(&file);
    if (said != all) MPI_Abort(MPI_COMM_WORLD, 1);
#else
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, begin, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (is_read) MPI_File_read_all(file, bytes, (int)length, MPI_BYTE, MPI_STATUS_IGNORE);
    else MPI_File_write_all(file, bytes, (int)length, MPI_BYTE, MPI_STATUS_IGNORE);
    took = MPI_Wtime() - start;
    MPI_File_close(&file);
#endif
    return took;
}

int main(int argc, char **argv) {
    size_t bytes = 0;
    MPI_Datatype type;
    MPI_Offset begin = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5) return 2;
    int n = atoi(argv[3]), rounds = atoi(argv[4]);
    if (!strcmp(argv[2], "block")) type = block(n, &bytes);
    else if (!strcmp(argv[2], "small")) type = small(n, &bytes);
    else if (!strcmp(argv[2], "lines")) {
        type = lines(n, &bytes);
        begin = (MPI_Offset)rank * n * 8;
    } else {
        bytes = (size_t)n << 20;
        begin = (MPI_Offset)rank * bytes;
        MPI_Type_contiguous(bytes, MPI_BYTE, &type);
    }
    MPI_Type_commit(&type);
#ifdef WITH_GIO
    list(type, begin);
#endif
    unsigned char *buffer = malloc(bytes), *back = malloc(bytes);
    uint64_t state = rank + 1;
    for (size_t i = 0; i < bytes; i++) buffer[i] = (unsigned char)next(&state);
    memset(back, 0, bytes);
    for (int direction = 0; direction < 2; direction++) {
        if (rank == 0) printf("%s %s", argv[2], direction ? "read" : "write");
        for (int round = -1; round < rounds; round++) {
            double longest, took = transfer(argv[1], direction, begin, type, direction ? back : buffer, bytes);
            MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (rank == 0 && round >= 0) printf(" %.6f", longest);
        }
        if (rank == 0) printf("\n");
    }
    if (memcmp(buffer, back, bytes)) {
        fprintf(stderr, "rank %d read other bytes than it wrote\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
