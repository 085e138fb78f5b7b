/* Random calls. argv[1]: a folder, argv[2]: how many, argv[3]: the seed. many_calls.rs makes the same ones. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES 16
#define SLOTS 8

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv)
{
    static const long sizes[] = {0, 1, 8, 100, 512, 4096};
    static char memory[8192] __attribute__((aligned(64)));
    assert(argc == 4 && chdir(argv[1]) == 0);
    state = strtoull(argv[3], NULL, 10);
    int fds[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        fds[i] = -1;
    for (long left = atol(argv[2]); left > 0; left--) {
        uint64_t r = next();
        int *fd = &fds[r % SLOTS];
        int what = (r >> 8) % 18;
        long n = (r >> 12) % 4 ? sizes[(r >> 16) % 6] : (long)((r >> 16) % 5000);
        long at = (r >> 32) % 65536;
        char *p = memory + (r >> 48) % 2;
        if (*fd < 0) {
            char name[20];
            snprintf(name, sizeof name, "f%d", (int)((r >> 40) % FILES));
            *fd = open(name, O_CREAT | O_RDWR | ((r >> 52) % 4 ? 0 : O_APPEND), 0600);
            assert(*fd >= 0);
        } else if (what == 0) {
            assert(close(*fd) == 0);
            *fd = -1;
        } else if (what < 3) {
            assert(lseek(*fd, at, SEEK_SET) == at);
        } else if (what == 3) {
            struct stat st;
            assert(fstat(*fd, &st) == 0);
        } else if (what < 7) {
            assert(read(*fd, p, n) >= 0);
        } else if (what < 10) {
            assert(write(*fd, p, n) == n);
        } else if (what < 13) {
            assert(pread(*fd, p, n, at) >= 0);
        } else if (what < 16) {
            assert(pwrite(*fd, p, n, at) == n);
        } else if (what == 16) {
            struct iovec v[2] = {{p, n / 2}, {memory, n - n / 2}};
            assert(preadv(*fd, v, 2, at) >= 0);
        } else {
            struct iovec v[2] = {{memory, n / 2}, {p, n - n / 2}};
            assert(writev(*fd, v, 2) == n);
        }
    }
    return 0;
}
