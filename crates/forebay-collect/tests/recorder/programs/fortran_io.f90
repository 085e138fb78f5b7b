! Formatted and direct access; argument: a folder.
program fortran_io
    implicit none
    character(len=400) :: folder
    integer :: i, record(256)
    call get_command_argument(1, folder)
    open(10, file=trim(folder)//'/direct', access='direct', recl=1024, form='unformatted', status='new')
    do i = 1, 16
        record = i
        write(10, rec=i) record
    end do
    do i = 16, 1, -1
        read(10, rec=i) record
        if (record(7) /= i) stop 1
    end do
    close(10)
    open(11, file=trim(folder)//'/text', status='new')
    do i = 1, 100
        write(11, '(a, i4)') 'line', i
    end do
    close(11)
end program
