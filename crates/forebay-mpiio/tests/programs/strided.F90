! Every rank writes every size-th pair of integers, all ranks read them back. Compiled three times: with mpif.h, with
! `use mpi` and with `use mpi_f08`.
program strided
#if defined(F08)
  use mpi_f08
#elif defined(MODULE)
  use mpi
#endif
  implicit none
#if !defined(F08) && !defined(MODULE)
  include 'mpif.h'
#endif
  integer, parameter :: pairs = 500
  integer :: error, rank, size, i, count
  integer :: values(2 * pairs), back(2 * pairs)
  integer(kind=MPI_OFFSET_KIND) :: begin
  integer(kind=MPI_ADDRESS_KIND) :: low, extent
  character(len=400) :: path
#if defined(F08)
  type(MPI_File) :: file
  type(MPI_Datatype) :: vector, tile
  type(MPI_Status) :: status
#else
  integer :: file, vector, tile, status(MPI_STATUS_SIZE)
#endif
  call get_command_argument(1, path)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  low = 0
  extent = 8 * size
  call MPI_Type_contiguous(2, MPI_INTEGER, vector, error)
  call MPI_Type_create_resized(vector, low, extent, tile, error)
  call MPI_Type_commit(tile, error)
  call MPI_File_open(MPI_COMM_WORLD, trim(path), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, error)
  begin = 8 * rank
  call MPI_File_set_view(file, begin, MPI_INTEGER, tile, 'native', MPI_INFO_NULL, error)
  do i = 1, 2 * pairs
    values(i) = 10000 * rank + i
  end do
  call MPI_File_write_all(file, values, 2 * pairs, MPI_INTEGER, status, error)
  call MPI_Get_count(status, MPI_INTEGER, count, error)
  if (count /= 2 * pairs) print *, 'wrong count', count
  begin = 0
  back = 0
  call MPI_File_read_at_all(file, begin, back, 2 * pairs, MPI_INTEGER, status, error)
  call MPI_Get_count(status, MPI_INTEGER, count, error)
  if (count /= 2 * pairs) print *, 'wrong count', count
  if (any(back /= values)) print *, 'wrong values'
  call MPI_File_write_all_begin(file, values, 2 * pairs, MPI_INTEGER, error)
  call MPI_File_write_all_end(file, values, MPI_STATUS_IGNORE, error)
  call MPI_File_close(file, error)
  call MPI_Finalize(error)
end program strided
