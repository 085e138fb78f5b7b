/* One process changes names, and says in shared memory what holds before and after each change. Others look at the names
 * with stat all the time, and what they see must have held at some moment of their call.
 *
 *     looks DIR READERS ROUNDS
 *
 * Prints one line, which is the same in every run that keeps POSIX's promises. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a name is known to be. */
enum { UNKNOWN = -2, ABSENT = -1 }; /* else: a file of this size */

enum { NAMES = 6 };
static const char *names[NAMES] = {"one", "other", "in/file", "out/file", "whole", "shut/file"};

static struct {
    /* Grows before and after each change, so that a reader knows whether one came in between. */
    atomic_long change[NAMES];
    atomic_long known[NAMES];
    atomic_int ended;
    atomic_long wrong, held, absent;
} *shared;

static char dir[4096];

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static const char *path(const char *name)
{
    static char place[2][8192];
    static int turn;
    turn = !turn;
    snprintf(place[turn], sizeof place[turn], "%s/%s", dir, name);
    return place[turn];
}

static void begin(int name)
{
    atomic_fetch_add(&shared->change[name], 1);
    atomic_store(&shared->known[name], UNKNOWN);
}

static void known(int name, long what)
{
    atomic_store(&shared->known[name], what);
    atomic_fetch_add(&shared->change[name], 1);
}

static void make(const char *name, long size)
{
    int fd = open(path(name), O_CREAT | O_EXCL | O_WRONLY, 0644);
    must(fd >= 0 && ftruncate(fd, size) == 0 && close(fd) == 0, name);
}

static void write_names(int rounds)
{
    for (long i = 1; i <= rounds; i++) {
        /* A file comes and goes, and another one may get its inode. */
        begin(0);
        make("one", i);
        known(0, i);
        begin(0);
        must(unlink(path("one")) == 0, "unlink");
        known(0, ABSENT);
        begin(1);
        make("other", 1000000 + i);
        known(1, 1000000 + i);
        /* A name takes the place of another. */
        begin(1);
        begin(4);
        must(rename(path("other"), path("whole")) == 0, "rename");
        known(4, 1000000 + i);
        known(1, ABSENT);
        /* A directory is renamed there and back. */
        begin(2);
        begin(3);
        must(rename(path("in"), path("out")) == 0, "rename");
        known(2, ABSENT);
        known(3, 5);
        begin(2);
        begin(3);
        must(rename(path("out"), path("in")) == 0, "rename");
        known(3, ABSENT);
        known(2, 5);
        if (i % 8 == 0) {
            /* A directory is closed and opened again: ABSENT stands for EACCES, unless root looks. */
            begin(5);
            must(chmod(path("shut"), 0) == 0, "chmod");
            known(5, geteuid() == 0 ? 7 : ABSENT);
            begin(5);
            must(chmod(path("shut"), 0755) == 0, "chmod");
            known(5, 7);
        }
    }
}

static void read_names(int first)
{
    for (int i = first; !atomic_load(&shared->ended); i = (i + 1) % NAMES) {
        struct stat found;
        long before = atomic_load(&shared->change[i]), what = atomic_load(&shared->known[i]);
        long seen = stat(path(names[i]), &found) == 0 ? found.st_size : ABSENT;
        int error = seen == ABSENT ? errno : 0;
        if (before & 1 || before != atomic_load(&shared->change[i]))
            continue;
        int refusal = i == 5 ? EACCES : ENOENT;
        if (seen != what || (seen == ABSENT && error != refusal)) {
            fprintf(stderr, "%s: size %ld, %s; it is %ld\n", names[i], seen, strerror(error), what);
            atomic_fetch_add(&shared->wrong, 1);
        }
        atomic_fetch_add(seen == ABSENT ? &shared->absent : &shared->held, 1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: looks DIR READERS ROUNDS\n");
        return 2;
    }
    snprintf(dir, sizeof dir, "%s", argv[1]);
    int readers = atoi(argv[2]), rounds = atoi(argv[3]), failed = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    must(mkdir(path("in"), 0755) == 0 && mkdir(path("shut"), 0755) == 0, "mkdir");
    make("in/file", 5);
    make("shut/file", 7);
    make("whole", 3);
    const long first[NAMES] = {ABSENT, ABSENT, 5, ABSENT, 3, 7};
    for (int i = 0; i < NAMES; i++)
        atomic_store(&shared->known[i], first[i]);
    for (int i = 0; i < readers; i++)
        if (fork() == 0) {
            read_names(i % NAMES);
            exit(0);
        }
    write_names(rounds);
    /* Whatever comes first: the names rest now, and are seen so. */
    long held = atomic_load(&shared->held) + 100;
    while (atomic_load(&shared->held) < held && !atomic_load(&shared->wrong))
        usleep(1000);
    atomic_store(&shared->ended, 1);
    for (int i = 0, status; i < readers; i++) {
        wait(&status);
        failed += status != 0;
    }
    printf("%ld wrong, %d readers failed\n", atomic_load(&shared->wrong), failed);
    return atomic_load(&shared->wrong) != 0 || failed != 0;
}
