/* Calls on descriptors whose counters are known. argv[1]: a folder. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[8192] __attribute__((aligned(64)));

static int make(const char *name, int flags)
{
    int fd = open(name, flags, 0640);
    assert(fd >= 0);
    return fd;
}

static void *half(void *arg)
{
    long which = (long)arg;
    int fd = make("threads", O_RDWR);
    for (int i = 0; i < 1000; i++)
        assert(pwrite(fd, buffer, 10, (which * 1000 + i) * 10) == 10);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);

    /* Sequential writes, a seek, reads to the end. */
    int fd = make("./plain", O_CREAT | O_RDWR | O_TRUNC);
    for (int i = 0; i < 10; i++)
        assert(write(fd, buffer, 1000) == 1000);
    assert(lseek(fd, 0, SEEK_SET) == 0);
    long n, sum = 0;
    while ((n = read(fd, buffer, 4096)) > 0)
        sum += n;
    assert(sum == 10000);
    struct stat st;
    assert(fstat(fd, &st) == 0 && stat("plain", &st) == 0);
    assert(fsync(fd) == 0 && fdatasync(fd) == 0 && close(fd) == 0);

    /* Every third block, from memory that is not aligned. */
    fd = make("strided", O_CREAT | O_WRONLY);
    for (int i = 0; i < 20; i++)
        assert(pwrite(fd, buffer + 1, 100, 300 * i) == 100);
    close(fd);

    /* Vectors. */
    struct iovec v[3] = {{buffer, 100}, {buffer + 104, 200}, {buffer + 304, 300}};
    fd = make("vectors", O_CREAT | O_RDWR);
    assert(writev(fd, v, 3) == 600);
    assert(pwritev(fd, v, 2, 1000) == 300);
    assert(pwritev2(fd, v, 1, 600, 0) == 100);
    assert(preadv(fd, v, 2, 0) == 300);
    assert(preadv2(fd, v, 1, 300, 0) == 100);
    assert(preadv2(fd, v, 1, -1, 0) == 100);
    close(fd);

    /* Appended bytes land at the end, wherever the position was. */
    int other = make("appended", O_CREAT | O_WRONLY);
    fd = make("appended", O_WRONLY | O_APPEND);
    assert(write(other, buffer, 500) == 500);
    assert(write(fd, buffer, 100) == 100);
    assert(write(fd, buffer, 100) == 100);
    close(fd);
    close(other);

    /* dup shares the position. */
    fd = make("shared", O_CREAT | O_RDWR);
    int twin = dup(fd), third = fcntl(fd, F_DUPFD, 50);
    assert(write(fd, buffer, 10) == 10 && write(twin, buffer, 10) == 10 && write(third, buffer, 10) == 10);
    close(fd);
    close(twin);
    close(third);

    /* Maps, and copies inside the kernel. */
    fd = make("plain", O_RDWR);
    char *p = mmap(NULL, 10000, PROT_READ, MAP_SHARED, fd, 0);
    assert(p != MAP_FAILED && munmap(p, 10000) == 0);
    int to = make("copied", O_CREAT | O_WRONLY);
    off_t at = 2000;
    assert(copy_file_range(fd, &at, to, NULL, 3000, 0) == 3000);
    assert(sendfile(to, fd, NULL, 1000) == 1000);
    close(fd);
    close(to);

    /* Names. */
    assert(rename("copied", "renamed") == 0 && mkdir("dir", 0700) == 0 && rmdir("dir") == 0);
    fd = make("gone", O_CREAT | O_WRONLY);
    close(fd);
    assert(unlink("gone") == 0 && open("gone", O_RDONLY) < 0 && stat("gone", &st) < 0);

    /* Two threads, one file. */
    close(make("threads", O_CREAT | O_RDWR));
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        assert(pthread_create(&t[i], NULL, half, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);

    /* Left out, and no files. */
    fd = make("/dev/zero", O_RDONLY);
    assert(read(fd, buffer, 4096) == 4096);
    close(fd);
    int ends[2];
    assert(pipe(ends) == 0 && write(ends[1], buffer, 70) == 70 && read(ends[0], buffer, 70) == 70);

    /* A temporary file, and one relative to a folder. */
    char name[] = "tmp.XXXXXX";
    fd = mkstemp(name);
    assert(fd >= 0 && write(fd, buffer, 5) == 5 && close(fd) == 0 && unlink(name) == 0);
    int dir = make(".", O_RDONLY | O_DIRECTORY);
    fd = openat(dir, "below", O_CREAT | O_WRONLY, 0600);
    assert(fd >= 0 && write(fd, buffer, 6) == 6);
    close(fd);
    close(dir);
    return 0;
}
