! A variable of two ranks by PnetCDF's functions of Fortran 77: pnetcdf_calls FILE
program pnetcdf_calls
  use mpi
  implicit none
  include 'pnetcdf.inc'
  integer :: rank, ranks, error, file, dimension, variable, values(10)
  integer(kind=MPI_OFFSET_KIND) :: length, start(1), count(1)
  character(len=4096) :: path

  call mpi_init(error)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, error)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, path)
  values = rank
  length = 10 * ranks
  start(1) = 10 * rank + 1
  count(1) = 10
  error = nfmpi_create(MPI_COMM_WORLD, trim(path), NF_CLOBBER, MPI_INFO_NULL, file)
  if (error /= NF_NOERR) call mpi_abort(MPI_COMM_WORLD, 3, error)
  error = nfmpi_def_dim(file, 'x', length, dimension)
  error = nfmpi_def_var(file, 'v', NF_INT, 1, [dimension], variable)
  error = nfmpi_enddef(file)
  error = nfmpi_put_vara_int_all(file, variable, start, count, values)
  if (error /= NF_NOERR) call mpi_abort(MPI_COMM_WORLD, 3, error)
  error = nfmpi_close(file)
  call mpi_finalize(error)
end program
