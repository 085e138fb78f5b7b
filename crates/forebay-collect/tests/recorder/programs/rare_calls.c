/* Calls that few programs make. argv[1]: a folder. */
#define _GNU_SOURCE
#include <aio.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char data[4096] __attribute__((aligned(64)));

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);

    int fd = open("aio", O_CREAT | O_RDWR, 0600);
    struct aiocb r = {.aio_fildes = fd, .aio_buf = data, .aio_nbytes = 1000, .aio_offset = 500};
    const struct aiocb *list[] = {&r};
    assert(aio_write(&r) == 0);
    while (aio_error(&r) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    assert(aio_return(&r) == 1000);
    r.aio_nbytes = 300;
    assert(aio_read(&r) == 0);
    while (aio_error(&r) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    assert(aio_return(&r) == 300);
    close(fd);

    /* Locks, and the open of a pipe: it waits for nobody, because it is open for both. */
    fd = open("locked", O_CREAT | O_RDWR, 0600);
    struct flock whole = {.l_type = F_WRLCK};
    assert(flock(fd, LOCK_EX) == 0 && flock(fd, LOCK_UN) == 0);
    assert(lockf(fd, F_LOCK, 10) == 0 && fcntl(fd, F_SETLKW, &whole) == 0);
    close(fd);
    assert(mkfifo("fifo", 0600) == 0);
    close(open("fifo", O_RDWR));

    /* A flag that is set later counts as the one at open; pwrite appends then, too. */
    fd = open("flagged", O_CREAT | O_RDWR, 0600);
    assert(write(fd, data, 100) == 100 && lseek(fd, 0, SEEK_SET) == 0);
    assert(fcntl(fd, F_SETFL, O_APPEND) == 0);
    assert(write(fd, data, 10) == 10 && pwrite(fd, data, 5, 0) == 5);
    close(fd);

    fd = open("printed", O_CREAT | O_WRONLY, 0600);
    assert(dprintf(fd, "%s-%d\n", "text", 12) == 8);
    close(fd);

    fd = open("spliced", O_CREAT | O_RDWR, 0600);
    int ends[2];
    loff_t at = 50;
    assert(pipe(ends) == 0 && write(ends[1], data, 200) == 200);
    assert(splice(ends[0], NULL, fd, &at, 200, 0) == 200);
    close(fd);

    int a = open("ranged", O_CREAT | O_WRONLY, 0600), b = open("ranged", O_WRONLY);
    assert(a < b && close_range(a, b, 0) == 0 && write(b, data, 1) == -1 && errno == EBADF);
    fd = open("again", O_CREAT | O_WRONLY, 0600);
    assert(fd == a && write(fd, data, 3) == 3 && dup2(fd, fd) == fd && close(fd) == 0);

    /* Two descriptors of one file, each with its own position. */
    a = open("two", O_CREAT | O_RDWR, 0600);
    b = open("two", O_RDWR);
    assert(write(a, data, 100) == 100 && read(b, data, 30) == 30 && write(a, data, 100) == 100 && read(b, data, 30) == 30);
    close(a);
    close(b);

    FILE *f = fopen("stream", "w+");
    assert(putw(77, f) == 0 && fseeko(f, 0, SEEK_SET) == 0 && getw(f) == 77);
    fpos_t position;
    assert(fgetpos(f, &position) == 0 && fputc('x', f) == 'x' && fsetpos(f, &position) == 0 && fgetc(f) == 'x');
    fclose(f);
    f = fopen("first", "w");
    fputs("one", f);
    f = freopen("second", "w", f);
    fputs("three", f);
    fclose(f);
    f = tmpfile();
    assert(fwrite(data, 1, 9, f) == 9);
    fclose(f);
    /* A stream in memory and one of a process are no files. */
    char *text;
    size_t n;
    f = open_memstream(&text, &n);
    fputs("memory", f);
    fclose(f);
    free(text);
    f = popen("echo from a process", "r");
    assert(fgets(data, sizeof data, f) && !strcmp(data, "from a process\n") && pclose(f) == 0);

    DIR *d = opendir(".");
    int entries = 0;
    while (readdir(d))
        entries++;
    closedir(d);
    struct dirent **found;
    assert(scandir(".", &found, NULL, alphasort) == entries);
    struct statx sx;
    struct stat st;
    assert(statx(AT_FDCWD, "two", 0, STATX_SIZE, &sx) == 0 && sx.stx_size == 200);
    assert(fstatat(AT_FDCWD, "two", &st, AT_SYMLINK_NOFOLLOW) == 0 && lstat("two", &st) == 0);
    assert(access("two", R_OK) == 0 && chmod("two", 0644) == 0 && truncate("two", 10) == 0);
    assert(link("two", "linked") == 0 && symlink("two", "soft") == 0 && readlink("soft", data, 10) == 3);
    assert(renameat2(AT_FDCWD, "linked", AT_FDCWD, "moved", RENAME_NOREPLACE) == 0);
    assert(setxattr("two", "user.x", "y", 1, 0) == 0 || errno == EOPNOTSUPP);
    assert(posix_fallocate(open("reserved", O_CREAT | O_WRONLY, 0600), 0, 4096) == 0);
    return 0;
}
