! MPI-IO from Fortran: a block per rank, an interleaved view, and Fortran's own units beside them.
program mpi_io_fortran
    use mpi
    implicit none
    integer, parameter :: n = 2000
    integer :: code, rank, ranks, file, kind, i, wrong, total
    integer :: whole(2), part(2), at(2)
    integer(kind=MPI_OFFSET_KIND) :: offset, bytes
    real(8) :: row(n), back(n)
    integer :: column(n)
    character(len=32) :: name

    call MPI_Init(code)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)

    row = [(rank * 10000d0 + i, i = 1, n)]
    call MPI_File_open(MPI_COMM_WORLD, 'rows', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, code)
    call check('open rows')
    offset = int(rank, MPI_OFFSET_KIND) * n * 8
    call MPI_File_write_at_all(file, offset, row, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, code)
    call check('write rows')
    call MPI_File_sync(file, code)
    call MPI_Barrier(MPI_COMM_WORLD, code)
    offset = int(mod(rank + 1, ranks), MPI_OFFSET_KIND) * n * 8
    call MPI_File_read_at_all(file, offset, back, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, code)
    call check('read rows')
    wrong = count(back /= [(mod(rank + 1, ranks) * 10000d0 + i, i = 1, n)])
    call MPI_File_get_size(file, bytes, code)
    call MPI_File_close(file, code)
    call tell('rows: wrong', wrong)
    if (rank == 0) print '(a, i0)', 'rows: bytes ', bytes

    whole = [ranks, n]; part = [1, n]; at = [rank, 0]
    call MPI_Type_create_subarray(2, whole, part, at, MPI_ORDER_FORTRAN, MPI_INTEGER, kind, code)
    call MPI_Type_commit(kind, code)
    call MPI_File_open(MPI_COMM_WORLD, 'interleaved', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, code)
    call check('open interleaved')
    offset = 0
    call MPI_File_set_view(file, offset, MPI_INTEGER, kind, 'native', MPI_INFO_NULL, code)
    column = [(rank + ranks * i, i = 1, n)]
    call MPI_File_write_all(file, column, n, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    call check('write interleaved')
    column = 0
    call MPI_File_seek(file, offset, MPI_SEEK_SET, code)
    call MPI_File_read_all(file, column, n, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    wrong = count(column /= [(rank + ranks * i, i = 1, n)])
    call MPI_File_close(file, code)
    call MPI_Type_free(kind, code)
    call tell('interleaved: wrong', wrong)

    write(name, '(a, i0)') 'unit.', rank
    open(20, file=name, form='unformatted', access='stream', status='replace')
    write(20) row
    close(20)
    call MPI_Barrier(MPI_COMM_WORLD, code)
    if (rank == 0) then
        do i = 0, ranks - 1
            write(name, '(a, i0)') 'unit.', i
            open(20, file=name, form='unformatted', access='stream', status='old', action='read')
            read(20) back
            close(20)
            print '(a, 1x, f0.1)', trim(name), sum(back)
        end do
    end if
    call MPI_Finalize(code)

contains

    subroutine check(what)
        character(len=*), intent(in) :: what
        integer :: ignored
        if (code /= MPI_SUCCESS) then
            print *, rank, what, code
            call MPI_Abort(MPI_COMM_WORLD, 2, ignored)
        end if
    end subroutine

    subroutine tell(what, mine)
        character(len=*), intent(in) :: what
        integer, intent(in) :: mine
        call MPI_Reduce(mine, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, code)
        if (rank == 0) print '(a, 1x, i0)', what, total
    end subroutine
end program
