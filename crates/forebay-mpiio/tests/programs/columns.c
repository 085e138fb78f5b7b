/* Parallel HDF5: every rank writes every size-th column of a data set, and reads others.
 * usage: columns FILE write|read */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 200, EACH = 30 };

static hid_t check(hid_t value, const char *what) {
    if (value < 0) {
        fprintf(stderr, "%s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return value;
}
#define TRY(call) check(call, #call)

int main(int argc, char **argv) {
    static double mine[ROWS][EACH];
    int rank, size, wrong = 0;
    if (argc != 3) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int writes = !strcmp(argv[2], "write");
    hid_t access = TRY(H5Pcreate(H5P_FILE_ACCESS));
    TRY(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hsize_t all[2] = {ROWS, EACH * size}, here[2] = {ROWS, EACH}, stride[2] = {1, size};
    hsize_t start[2] = {0, writes ? rank : (rank + 1) % size};
    hid_t space = TRY(H5Screate_simple(2, all, NULL)), memory = TRY(H5Screate_simple(2, here, NULL));
    hid_t together = TRY(H5Pcreate(H5P_DATASET_XFER));
    TRY(H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE));
    TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, here, NULL));
    if (writes) {
        for (int i = 0; i < ROWS * EACH; i++) mine[i / EACH][i % EACH] = rank * 1e6 + i;
        hid_t file = TRY(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));
        hid_t grid = TRY(H5Dcreate2(file, "grid", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        TRY(H5Dwrite(grid, H5T_NATIVE_DOUBLE, memory, space, together, mine));
        TRY(H5Dclose(grid));
        TRY(H5Fclose(file));
    } else {
        hid_t file = TRY(H5Fopen(argv[1], H5F_ACC_RDONLY, access));
        hid_t grid = TRY(H5Dopen2(file, "grid", H5P_DEFAULT));
        TRY(H5Dread(grid, H5T_NATIVE_DOUBLE, memory, space, together, mine));
        for (int i = 0; i < ROWS * EACH; i++) wrong += mine[i / EACH][i % EACH] != (rank + 1) % size * 1e6 + i;
        printf("%d wrong\n", wrong);
        TRY(H5Dclose(grid));
        TRY(H5Fclose(file));
    }
    MPI_Finalize();
    return 0;
}
