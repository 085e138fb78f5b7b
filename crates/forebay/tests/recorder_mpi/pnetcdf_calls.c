/* Files and variables of PnetCDF in known numbers, on two or more ranks: pnetcdf_calls FILE */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>

static void check(int error, const char *what) {
    if (error != NC_NOERR) {
        fprintf(stderr, "%s: %s\n", what, ncmpi_strerror(error));
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}
#define TRY(call) check(call, #call)

int main(int argc, char **argv) {
    int rank, size, file, x, y, time, grid, series, scalar, request, status;
    static int ints[10][20];
    static double doubles[20];
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    TRY(ncmpi_create(MPI_COMM_WORLD, argv[1], NC_CLOBBER, MPI_INFO_NULL, &file));
    TRY(ncmpi_def_dim(file, "time", NC_UNLIMITED, &time));
    TRY(ncmpi_def_dim(file, "y", 10 * size, &y));
    TRY(ncmpi_def_dim(file, "x", 20, &x));
    int of_grid[2] = {y, x}, of_series[2] = {time, x};
    TRY(ncmpi_def_var(file, "grid", NC_INT, 2, of_grid, &grid));
    TRY(ncmpi_def_var(file, "series", NC_DOUBLE, 2, of_series, &series));
    TRY(ncmpi_def_var(file, "scalar", NC_SHORT, 0, NULL, &scalar));
    TRY(ncmpi_enddef(file));

    /* grid: one collective block, one without type in the name, with strides, by a map. */
    MPI_Offset start[2] = {10 * rank, 0}, count[2] = {10, 20}, stride[2] = {2, 4}, map[2] = {5, 1};
    TRY(ncmpi_put_vara_int_all(file, grid, start, count, &ints[0][0]));
    TRY(ncmpi_put_vara_all(file, grid, start, count, ints, 200, MPI_INT));
    count[0] = 5, count[1] = 5;
    TRY(ncmpi_put_vars_int_all(file, grid, start, count, stride, &ints[0][0]));
    TRY(ncmpi_get_varm_int_all(file, grid, start, count, stride, map, &ints[0][0]));
    /* Nothing at all, as a rank without data says it. */
    TRY(ncmpi_put_vard_all(file, grid, MPI_DATATYPE_NULL, NULL, 0, MPI_INT));
    /* Independent: one element, and a list of two blocks of 3 and 4 elements. */
    TRY(ncmpi_begin_indep_data(file));
    TRY(ncmpi_put_var1_int(file, grid, start, &ints[0][0]));
    MPI_Offset a[2] = {10 * rank, 0}, b[2] = {10 * rank, 10}, na[2] = {1, 3}, nb[2] = {2, 2};
    MPI_Offset *starts[2] = {a, b}, *counts[2] = {na, nb};
    TRY(ncmpi_get_varn_int(file, grid, 2, starts, counts, &ints[0][0]));
    TRY(ncmpi_end_indep_data(file));

    /* series: 2 records, without blocking, waited for by all and alone. */
    MPI_Offset record[2] = {0, 0}, one_record[2] = {1, 20};
    TRY(ncmpi_iput_vara_double(file, series, record, one_record, doubles, &request));
    TRY(ncmpi_wait_all(file, 1, &request, &status));
    record[0] = 1;
    TRY(ncmpi_buffer_attach(file, 4096));
    TRY(ncmpi_bput_vara_double(file, series, record, one_record, doubles, &request));
    TRY(ncmpi_wait_all(file, 1, &request, &status));
    TRY(ncmpi_buffer_detach(file));
    TRY(ncmpi_iget_vara_double(file, series, record, one_record, doubles, &request));
    TRY(ncmpi_begin_indep_data(file));
    TRY(ncmpi_wait(file, 1, &request, &status));
    TRY(ncmpi_end_indep_data(file));
    short one = 1;
    TRY(ncmpi_put_var_short_all(file, scalar, &one));
    TRY(ncmpi_sync(file));
    TRY(ncmpi_redef(file));
    TRY(ncmpi_enddef(file));
    TRY(ncmpi_close(file));

    /* Read again: by name; by number without having asked for the name. */
    static double both[2][20];
    TRY(ncmpi_open(MPI_COMM_WORLD, argv[1], NC_NOWRITE, MPI_INFO_NULL, &file));
    TRY(ncmpi_inq_varid(file, "series", &series));
    TRY(ncmpi_get_var_double_all(file, series, &both[0][0]));
    MPI_Datatype row;
    MPI_Type_contiguous(20, MPI_INT, &row);
    MPI_Type_commit(&row);
    TRY(ncmpi_get_vard_all(file, 0, row, ints, 20, MPI_INT));
    MPI_Type_free(&row);
    TRY(ncmpi_close(file));
    MPI_Finalize();
    return 0;
}
