/* Two threads write for a third of a second, and tell how long it was from their first to their last write, at least and at most, in ns. */
#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *writes(void *arg)
{
    const char *name = arg;
    char expected[40];
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    long first = now(), least_first = 0, before, after;
    do {
        before = now();
        assert(pwrite(fd, "x", 1, 0) == 1);
        after = now();
        if (!least_first)
            least_first = after;
    } while (after - first < 330000000L);
    snprintf(expected, sizeof expected, "%s.expected", name);
    FILE *f = fopen(expected, "w");
    fprintf(f, "%ld %ld", before - least_first, after - first);
    fclose(f);
    return NULL;
}

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);
    pthread_t t;
    pthread_create(&t, NULL, writes, "a");
    writes("b");
    pthread_join(t, NULL);
    return 0;
}
