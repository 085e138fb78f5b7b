//! Compilers: they write files that other processes map, execute and load a moment later.

use crate::common::{case, need};

#[test]
fn gcc_compiles_links_and_runs_a_program_in_the_buffer() {
    need!("gcc", "ar");
    case!()
        .start(
            r#"
            mkdir src include
            printf '#define ANSWER 41\nint next(int);\n' > include/next.h
            printf '#include "next.h"\nint next(int x) { return x + 1; }\n' > src/next.c
            "#,
        )
        .same(
            r#"
            mkdir tmp build; export TMPDIR=$PWD/tmp
            cat > src/main.c <<'END'
#include <next.h>
#include <stdio.h>
int main(int argc, char **argv) {
    FILE *f = fopen("said", "a");
    fprintf(f, "%d with %d\n", next(ANSWER), argc - 1);
    return fclose(f) ? 1 : next(ANSWER);
}
END
            gcc -Iinclude -Wall -O1 -o build/direct src/main.c src/next.c; build/direct a b; echo $?
            gcc -Iinclude -g -MMD -c src/main.c -o build/main.o; gcc -Iinclude -pipe -c src/next.c -o build/next.o
            cat build/main.d; ar rcs build/libnext.a build/next.o; ar t build/libnext.a
            gcc -o build/static-lib build/main.o -Lbuild -lnext; ./build/static-lib; echo $?
            # The dynamic loader opens libraries before any preload library runs: they lie outside.
            gcc -shared -fPIC -Iinclude -o "$OUTSIDE/libnext.so" src/next.c; rm build/libnext.a
            gcc -o build/dynamic build/main.o -L"$OUTSIDE" -lnext -Wl,-rpath,"$OUTSIDE"; "$PWD/build/dynamic" x; echo $?
            sed -i 's/41/6/' include/next.h; gcc -save-temps=obj -Iinclude -o build/direct src/main.c src/next.c; build/direct; echo $?
            cp build/direct build/copy; strip build/copy; build/copy; mv build/copy moved; ./moved; echo $?
            echo 'int main( {' > src/broken.c; gcc -c src/broken.c -o build/broken.o 2>/dev/null || echo refused; ls build/broken.o 2>&1
            cat said; ls -A tmp
            "#,
        );
}

#[test]
fn a_program_loads_a_library_that_was_just_built() {
    need!("gcc");
    case!().same(
        r#"
        cat > plugin.c <<'END'
int answer(void) { return 7; }
END
        cat > host.c <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : 0;
        printf("%d: %d\n", i, answer ? answer() : -1);
    }
    return 0;
}
END
        gcc -shared -fPIC -o plugin.so plugin.c; gcc -o host host.c
        mkdir sub; cp plugin.so sub/; ./host ./plugin.so "$PWD/sub/plugin.so" ./none.so
        cd sub; ../host ./plugin.so
        "#,
    );
}

#[test]
fn make_rebuilds_what_is_older_than_its_source() {
    need!("gcc", "make");
    case!()
        .start(
            r#"
            printf 'int main(void) { return 3; }\n' > old.c
            printf 'all: old new out/deep\nout/%%: | out\n\techo made > $@\nout:\n\tmkdir out\n%%: %%.c\n\tgcc -o $@ $<\nclean:\n\trm -rf old new out\n.PHONY: all clean\n' > Makefile
            "#,
        )
        .same(
            r#"
            printf 'int main(void) { return 4; }\n' > new.c
            make; ./old; echo $?; ./new; echo $?; make
            touch -d '2090-01-01' old.c; make 2>&1 | grep -v -i 'clock\|future'; touch -d '2011-01-01' old.c
            make -j2 clean; ls; make -s -j4; make -q && echo up to date
            "#,
        );
}

#[test]
fn gfortran_reads_and_writes_units() {
    need!("gfortran");
    case!().start("seq 1 10 > numbers").same(
        r#"
        cat > units.f90 <<'END'
program units
    implicit none
    integer :: i, n, total, status
    logical :: there
    real(8) :: row(16)
    open(10, file='numbers', status='old', action='read')
    total = 0
    do
        read(10, *, iostat=status) n
        if (status /= 0) exit
        total = total + n
    end do
    close(10)
    print *, total
    open(11, file='direct', access='direct', form='unformatted', recl=128, status='new')
    do i = 64, 1, -1
        row = i
        write(11, rec=i) row
    end do
    read(11, rec=32) row
    print *, sum(row)
    close(11)
    open(12, file='stream', access='stream', form='unformatted')
    write(12, pos=1001) 'far'
    close(12)
    open(13, file='numbers', position='append')
    write(13, '(i0)') 11
    close(13)
    open(14, status='scratch')
    write(14, *) 'vanishes'
    close(14)
    open(15, file='stream')
    close(15, status='delete')
    inquire(file='stream', exist=there)
    print *, there
    open(16, file='direct', status='new', iostat=status)
    print *, status /= 0
end program
END
        gfortran -o units units.f90; mkdir tmp; TMPDIR=$PWD/tmp ./units; ls -A tmp; tail -1 numbers
        "#,
    );
}
