/* Files, groups and datasets of HDF5 in known numbers: hdf5_calls FILE */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>

static hid_t check(hid_t value, const char *what) {
    if (value < 0) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
    return value;
}
#define TRY(call) check(call, #call)

int main(int argc, char **argv) {
    static int data[20][30];
    if (argc != 2)
        return 2;
    hid_t file = TRY(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    hsize_t dims[2] = {20, 30}, chunk[2] = {5, 10}, max[2] = {H5S_UNLIMITED, 30};
    hid_t space = TRY(H5Screate_simple(2, dims, NULL));

    /* /plain: written as a whole, read back twice by one regular hyperslab and once by an irregular one. */
    hid_t plain = TRY(H5Dcreate2(file, "plain", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    TRY(H5Dwrite(plain, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    hsize_t start[2] = {1, 2}, stride[2] = {4, 5}, count[2] = {3, 4}, block[2] = {2, 3};
    TRY(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block));
    for (int i = 0; i < 2; i++)
        TRY(H5Dread(plain, H5T_NATIVE_INT, H5S_ALL, space, H5P_DEFAULT, data));
    hsize_t one[2] = {1, 1}, far[2] = {19, 29};
    TRY(H5Sselect_hyperslab(space, H5S_SELECT_OR, far, NULL, one, NULL));
    TRY(H5Dread(plain, H5T_NATIVE_INT, H5S_ALL, space, H5P_DEFAULT, data));
    TRY(H5Dflush(plain));
    TRY(H5Dclose(plain));

    /* /group/chunked: created by the old function, three points, then grown to 40 rows and written whole. */
    hid_t group = TRY(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t properties = TRY(H5Pcreate(H5P_DATASET_CREATE));
    TRY(H5Pset_chunk(properties, 2, chunk));
    hid_t growing = TRY(H5Screate_simple(2, dims, max));
    hid_t chunked = TRY(H5Dcreate1(group, "chunked", H5T_IEEE_F64LE, growing, properties));
    hsize_t points[3][2] = {{0, 0}, {1, 1}, {2, 2}};
    TRY(H5Sselect_elements(growing, H5S_SELECT_SET, 3, &points[0][0]));
    hsize_t three = 3;
    hid_t memory = TRY(H5Screate_simple(1, &three, NULL));
    TRY(H5Dwrite(chunked, H5T_NATIVE_INT, memory, growing, H5P_DEFAULT, data));
    dims[0] = 40;
    TRY(H5Dset_extent(chunked, dims));
    static double grown[40][30];
    TRY(H5Dwrite(chunked, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, grown));
    TRY(H5Fflush(chunked, H5F_SCOPE_LOCAL));
    TRY(H5Dclose(chunked));
    TRY(H5Fflush(file, H5F_SCOPE_GLOBAL));
    TRY(H5Fclose(file));
    TRY(H5Gclose(group));

    /* Again: by another path to the same dataset, and as an object. */
    file = TRY(H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT));
    chunked = TRY(H5Dopen2(file, "/group/chunked", H5P_DEFAULT));
    TRY(H5Dread(chunked, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, grown));
    TRY(H5Dclose(chunked));
    group = TRY(H5Oopen(file, "group", H5P_DEFAULT));
    chunked = TRY(H5Oopen(group, "chunked", H5P_DEFAULT));
    TRY(H5Oclose(chunked));
    TRY(H5Oclose(group));
    TRY(H5Fclose(file));
    return 0;
}
