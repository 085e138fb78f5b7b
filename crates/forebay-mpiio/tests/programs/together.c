/* Calls that come together, and large ones.
 * usage: together FILE counts    the forms with large counts, of MPI 4; those with int where there are none
 *        together FILE threads   two threads of each rank, each with a file and a communicator of its own. ROMIO may lock up by itself:
 *                                each call holds a lock of the rank while it waits for other ranks
 *        together FILE turns     the same in one thread
 *        together FILE two       two files open at once, split calls on both under way at the same time
 *        together FILE huge      more than 2^31 bytes of rank 0 in one call */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 500, BYTES = 48, CALLS = 10, MIB = 1 << 20, HUGE_MIB = 2100 };

#if MPI_VERSION >= 4
typedef MPI_Count Count;
#define FORM(name) name##_c
#else
typedef int Count;
#define FORM(name) name
#endif

static int rank, size;

/* A file of which each rank has every size-th piece. */
static MPI_File open_tiled(MPI_Comm comm, const char *path, const char *suffix, int bytes) {
    char name[400];
    MPI_File file;
    MPI_Datatype tile, block;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    if (MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) MPI_Abort(comm, 3);
    MPI_Type_contiguous(bytes, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)bytes * size, &tile);
    MPI_Type_commit(&tile);
    MPI_File_set_view(file, (MPI_Offset)rank * bytes, MPI_BYTE, tile, "native", MPI_INFO_NULL);
    MPI_Type_free(&tile);
    MPI_Type_free(&block);
    return file;
}

/* Bytes that tell the rank, the call and the place. */
static void fill(char *bytes, size_t length, int call) {
    for (size_t n = 0; n < length; n++) bytes[n] = (char)(n * 7 + n / 251 + rank * 31 + call * 13 + 1);
}

static int counts(const char *path) {
    static char mine[PIECES * BYTES], back[PIECES * BYTES];
    MPI_File file = open_tiled(MPI_COMM_WORLD, path, "", BYTES);
    MPI_Status status;
    int failed = 0, n;
    const Count length = sizeof mine;
    for (int call = 0; call < 4; call++) {
        MPI_Offset at = (MPI_Offset)call * length;
        fill(mine, sizeof mine, call);
        MPI_File_seek(file, at, MPI_SEEK_SET);
        switch (call) {
        case 0: failed |= FORM(MPI_File_write_all)(file, mine, length, MPI_BYTE, &status); break;
        case 1: failed |= FORM(MPI_File_write_at_all)(file, at, mine, length, MPI_BYTE, &status); break;
        case 2:
            failed |= FORM(MPI_File_write_all_begin)(file, mine, length, MPI_BYTE);
            failed |= MPI_File_write_all_end(file, mine, &status);
            break;
        default:
            failed |= FORM(MPI_File_write_at_all_begin)(file, at, mine, length, MPI_BYTE);
            failed |= MPI_File_write_at_all_end(file, mine, &status);
        }
        MPI_Get_count(&status, MPI_BYTE, &n);
        failed |= n != (int)length;
    }
    for (int call = 0; call < 4; call++) {
        MPI_Offset at = (MPI_Offset)call * length;
        fill(mine, sizeof mine, call);
        MPI_File_seek(file, at, MPI_SEEK_SET);
        memset(back, 0, sizeof back);
        switch (call) {
        case 0: failed |= FORM(MPI_File_read_all)(file, back, length, MPI_BYTE, &status); break;
        case 1: failed |= FORM(MPI_File_read_at_all)(file, at, back, length, MPI_BYTE, &status); break;
        case 2:
            failed |= FORM(MPI_File_read_all_begin)(file, back, length, MPI_BYTE);
            failed |= MPI_File_read_all_end(file, back, &status);
            break;
        default:
            failed |= FORM(MPI_File_read_at_all_begin)(file, at, back, length, MPI_BYTE);
            failed |= MPI_File_read_at_all_end(file, back, &status);
        }
        failed |= memcmp(mine, back, sizeof mine) != 0;
    }
    MPI_File_close(&file);
    return failed;
}

struct work {
    MPI_Comm comm;
    MPI_File file;
    int first, failed;
};

static void *writes(void *given) {
    struct work *work = given;
    char *mine = malloc(PIECES * BYTES), *back = malloc(PIECES * BYTES);
    for (int call = 0; call < CALLS; call++) {
        MPI_Offset at = (MPI_Offset)call * PIECES * BYTES;
        fill(mine, PIECES * BYTES, work->first + call);
        work->failed |= MPI_File_write_at_all(work->file, at, mine, PIECES * BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
        work->failed |= MPI_File_read_at_all(work->file, at, back, PIECES * BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
        work->failed |= memcmp(mine, back, PIECES * BYTES) != 0;
    }
    free(mine);
    free(back);
    return NULL;
}

static int threads(const char *path, int at_once) {
    struct work work[2] = {{.first = 0}, {.first = CALLS}};
    pthread_t all[2];
    for (int n = 0; n < 2; n++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &work[n].comm);
        work[n].file = open_tiled(work[n].comm, path, n ? ".b" : ".a", BYTES);
    }
    for (int n = 0; n < 2; n++) {
        if (at_once) pthread_create(&all[n], NULL, writes, &work[n]);
        else writes(&work[n]);
    }
    for (int n = 0; n < 2 && at_once; n++) pthread_join(all[n], NULL);
    for (int n = 0; n < 2; n++) {
        MPI_File_close(&work[n].file);
        MPI_Comm_free(&work[n].comm);
    }
    return work[0].failed | work[1].failed;
}

static int two(const char *path) {
    static char mine[2][PIECES * BYTES];
    MPI_File files[2];
    int failed = 0;
    for (int n = 0; n < 2; n++) files[n] = open_tiled(MPI_COMM_WORLD, path, n ? ".b" : ".a", BYTES);
    for (int call = 0; call < CALLS; call++) {
        for (int n = 0; n < 2; n++) {
            fill(mine[n], sizeof mine[n], call * 2 + n);
            failed |= MPI_File_write_all_begin(files[n], mine[n], sizeof mine[n], MPI_BYTE);
        }
        /* Not in the order in which they began. */
        for (int n = 1; n >= 0; n--) failed |= MPI_File_write_all_end(files[n], mine[n], MPI_STATUS_IGNORE);
    }
    for (int n = 0; n < 2; n++) MPI_File_close(&files[n]);
    return failed;
}

static int huge(const char *path) {
    int pieces = rank ? 1 : HUGE_MIB, n, failed = 0;
    char *mine = malloc((size_t)pieces * MIB);
    MPI_File file = open_tiled(MPI_COMM_WORLD, path, "", MIB);
    MPI_Datatype block;
    MPI_Status status;
    MPI_Type_contiguous(MIB, MPI_BYTE, &block);
    MPI_Type_commit(&block);
    for (int piece = 0; piece < pieces; piece++) memset(mine + (size_t)piece * MIB, 1 + (piece + rank) % 250, MIB);
    failed |= MPI_File_write_all(file, mine, pieces, block, &status);
    MPI_Get_count(&status, block, &n);
    failed |= n != pieces;
    memset(mine, 0, (size_t)pieces * MIB);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    failed |= MPI_File_read_all(file, mine, pieces, block, &status);
    for (int piece = 0; piece < pieces; piece++) {
        const char *at = mine + (size_t)piece * MIB;
        failed |= *at != (char)(1 + (piece + rank) % 250) || memcmp(at, at + 1, MIB - 1);
    }
    MPI_File_close(&file);
    return failed;
}

int main(int argc, char **argv) {
    int provided, failed = 2;
    if (argc != 3) return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[2], "counts")) failed = counts(argv[1]);
    if (!strcmp(argv[2], "two")) failed = two(argv[1]);
    if (!strcmp(argv[2], "huge")) failed = huge(argv[1]);
    if (!strcmp(argv[2], "turns")) failed = threads(argv[1], 0);
    if (!strcmp(argv[2], "threads")) failed = provided < MPI_THREAD_MULTIPLE ? 0 : threads(argv[1], 1);
    if (provided < MPI_THREAD_MULTIPLE && !strcmp(argv[2], "threads")) printf("no threads\n");
    printf("rank %d: %s\n", rank, failed ? "failed" : "done");
    MPI_Finalize();
    return 0;
}
