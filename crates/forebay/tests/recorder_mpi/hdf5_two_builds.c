/* A program and its library use two builds of HDF5, which symbol versions keep apart: hdf5_two_builds FILE1 FILE2
 * With -DINNER this is the library. */
#include <hdf5.h>

#ifdef INNER
#define WRITE write_inner
#else
#define WRITE write_outer
int write_inner(const char *path);
#endif

int WRITE(const char *path) {
    static int values[10];
    hsize_t n = 10;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, space, H5P_DEFAULT, values) < 0)
        return 1;
    return H5Dclose(set) < 0 || H5Sclose(space) < 0 || H5Fclose(file) < 0;
}

#ifndef INNER
int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    /* In turns, so that ids of the one are never known to the other by chance. */
    for (int i = 0; i < 3; i++)
        if (write_outer(argv[1]) || write_inner(argv[2]))
            return 3;
    return 0;
}
#endif
