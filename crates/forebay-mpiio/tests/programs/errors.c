/* Collective calls that go wrong. Every rank prints the class of the error that it got, and how often the handler ran.
 * usage: errors FILE full        writes small pieces until the disk is full
 *        errors FILE end         reads behind the end of a file: prints bytes read by each rank
 *        errors FILE readonly    writes to a file that was opened for reading
 *        errors FILE missing     opens a file that is not there
 *        errors FILE killed      a rank is killed between two calls
 *        errors FILE struck      a rank is killed while all are in a call
 *        errors FILE limited     the last rank may write no byte to a file
 *        errors FILE nowhere     the last rank gives no buffer */
#include "pieces.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int calls;

/* Ends the process when its main thread is on the way into the fourth call, or in it. */
static void *strike(void *unused) {
    (void)unused;
    while (calls < 3) {}
    kill(getpid(), SIGKILL);
    return NULL;
}

int main(int argc, char **argv) {
    int rank, size, class = 0, result = MPI_SUCCESS, count;
    MPI_File file;
    MPI_Status status;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(argv[2], "missing")) {
        result = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
        MPI_Error_class(result, &class);
        printf("rank %d: %s\n", rank, class == MPI_ERR_NO_SUCH_FILE ? "no such file" : "another class");
        MPI_Finalize();
        return 0;
    }
    int readonly = !strcmp(argv[2], "readonly");
    if (readonly && rank == 0) fclose(fopen(argv[1], "w"));
    MPI_Barrier(MPI_COMM_WORLD);
    file = open_pieces(argv[1], readonly ? MPI_MODE_RDONLY : MPI_MODE_CREATE | MPI_MODE_RDWR);
    if (!strcmp(argv[2], "end")) {
        MPI_File_write_all(file, mine, sizeof mine, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_sync(file);
        /* The file ends in the middle of rank 0's piece number 1500. */
        MPI_File_set_size(file, (MPI_Offset)1500 * BYTES * size + 10);
        MPI_File_seek(file, 1000 * BYTES, MPI_SEEK_SET);
        result = MPI_File_read_all(file, mine, sizeof mine, MPI_BYTE, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        printf("rank %d: %d bytes\n", rank, count);
    } else {
        pthread_t other;
        if (!strcmp(argv[2], "struck") && rank == 1) pthread_create(&other, NULL, strike, NULL);
        if (!strcmp(argv[2], "limited") && rank == size - 1) {
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
        }
        while (result == MPI_SUCCESS && calls < 200) {
            void *bytes = !strcmp(argv[2], "nowhere") && rank == size - 1 ? NULL : mine;
            result = MPI_File_write_all(file, bytes, sizeof mine, MPI_BYTE, MPI_STATUS_IGNORE);
            calls++;
            if (!strcmp(argv[2], "killed") && calls == 3 && rank == 1) kill(getpid(), SIGKILL);
        }
        printf("rank %d: %s, heard %d\n", rank, told(result), heard);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
