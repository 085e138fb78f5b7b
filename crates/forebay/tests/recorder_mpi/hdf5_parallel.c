/* A dataset of all ranks: hdf5_parallel FILE */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>

static hid_t check(hid_t value, const char *what) {
    if (value < 0) {
        fprintf(stderr, "%s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return value;
}
#define TRY(call) check(call, #call)

int main(int argc, char **argv) {
    static int mine[10][100];
    int rank, size;
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    hid_t access = TRY(H5Pcreate(H5P_FILE_ACCESS));
    TRY(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = TRY(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));
    hsize_t dims[2] = {10 * size, 100}, start[2] = {10 * rank, 0}, count[2] = {10, 100};
    hid_t space = TRY(H5Screate_simple(2, dims, NULL)), memory = TRY(H5Screate_simple(2, count, NULL));
    hid_t grid = TRY(H5Dcreate2(file, "grid", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    hid_t together = TRY(H5Pcreate(H5P_DATASET_XFER));
    TRY(H5Pset_dxpl_mpio(together, H5FD_MPIO_COLLECTIVE));
    TRY(H5Dwrite(grid, H5T_NATIVE_INT, memory, space, together, mine));
    TRY(H5Dread(grid, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, mine));
    TRY(H5Dclose(grid));
    TRY(H5Fclose(file));
    TRY(H5Pclose(access));
    MPI_Finalize();
    return 0;
}
