/* One rank with many calls: mpi_many DIR FILES THREADS
 * FILES files are written one after the other, 16 bytes each; then every one of THREADS threads writes 500 times 8 bytes
 * to a file that all share, and reads them. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static MPI_File shared;

static void *thread(void *number) {
    long long value = 0;
    MPI_Offset at = 4000 * (long)number;
    for (int i = 0; i < 500; i++) {
        MPI_File_write_at(shared, at + 8 * i, &value, 1, MPI_LONG_LONG, MPI_STATUS_IGNORE);
        MPI_File_read_at(shared, at + 8 * i, &value, 1, MPI_LONG_LONG, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static MPI_File open_file(const char *dir, const char *name, int number) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s%d", dir, name, number);
    if (MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    return file;
}

int main(int argc, char **argv) {
    int level, files, threads;
    pthread_t ids[16];
    if (argc != 4)
        return 2;
    files = atoi(argv[2]), threads = atoi(argv[3]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    for (int i = 0; i < files; i++) {
        MPI_File file = open_file(argv[1], "many.", i);
        MPI_File_write(file, "sixteen bytes ..", 16, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
    }
    if (level == MPI_THREAD_MULTIPLE) {
        shared = open_file(argv[1], "shared.", threads);
        for (long i = 0; i < threads; i++)
            pthread_create(&ids[i], NULL, thread, (void *)i);
        for (int i = 0; i < threads; i++)
            pthread_join(ids[i], NULL);
        MPI_File_close(&shared);
    }
    MPI_Finalize();
    return 0;
}
