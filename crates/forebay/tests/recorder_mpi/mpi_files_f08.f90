! A file of all ranks through the bindings of Fortran 2008.
program mpi_files
  use mpi_f08
  implicit none
  integer :: rank, ranks, error
  type(MPI_File) :: file
  type(MPI_Request) :: request
  integer(kind=MPI_OFFSET_KIND) :: at
  character(len=4096) :: dir
  real(kind=8) :: values(100), back(100)

  call mpi_init(error)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, error)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, dir)
  values = rank
  at = 800 * rank
  call mpi_file_open(MPI_COMM_WORLD, trim(dir) // '/fortran', MPI_MODE_CREATE + MPI_MODE_RDWR, &
                     MPI_INFO_NULL, file, error)
  if (error /= MPI_SUCCESS) call mpi_abort(MPI_COMM_WORLD, 3, error)
  call mpi_file_write_at(file, at, values, 100, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, error)
  call mpi_file_write_at_all(file, at, values, 100, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, error)
  call mpi_file_iwrite_at(file, at, values, 50, MPI_DOUBLE_PRECISION, request, error)
  call mpi_wait(request, MPI_STATUS_IGNORE, error)
  call mpi_file_sync(file, error)
  at = 0
  call mpi_file_set_view(file, at, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, 'native', MPI_INFO_NULL, error)
  call mpi_file_read_all(file, back, 100, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, error)
  call mpi_file_read_all_begin(file, back, 10, MPI_DOUBLE_PRECISION, error)
  call mpi_file_read_all_end(file, back, MPI_STATUS_IGNORE, error)
  call mpi_file_close(file, error)
  call mpi_finalize(error)
end program
