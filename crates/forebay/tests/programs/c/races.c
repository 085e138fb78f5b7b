/* Many processes do one thing to one path at the same instant, again and again.
 *
 *     races KIND PROCESSES ROUNDS
 *
 * Prints one line, which is the same in every run that keeps POSIX's promises. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256 };

static struct {
    pthread_barrier_t all;
    int result[MOST]; /* 0 or errno */
    ino_t inode[MOST];
    long long wrong, won;
} *shared;

static int me, processes;
static char path[64], own[64];

static int outcome(int code)
{
    return code < 0 ? errno : 0;
}

static int exclusive(void)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0)
        return errno;
    if (dprintf(fd, "%d\n", me) < 0 || close(fd) < 0)
        return EIO;
    return 0;
}

static int together(void)
{
    struct stat found;
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);
    if (fd < 0)
        return errno;
    if (fstat(fd, &found) < 0 || write(fd, "x", 1) != 1)
        return EIO;
    shared->inode[me] = found.st_ino;
    return close(fd) < 0 ? EIO : 0;
}

static int make_directory(void)
{
    return outcome(mkdir(path, 0755));
}

static int make_symlink(void)
{
    return outcome(symlink("anywhere", path));
}

static int make_link(void)
{
    return outcome(link(own, path));
}

static int rename_over(void)
{
    int fd = open(own, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0)
        return errno;
    if (dprintf(fd, "%d\n", me) < 0 || close(fd) < 0)
        return EIO;
    return outcome(rename(own, path));
}

static int remove_one(void)
{
    return outcome(unlink(path));
}

static int move_away(void)
{
    return outcome(rename(path, own));
}

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void touch(const char *name)
{
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
    must(fd >= 0 && close(fd) == 0, name);
}

static const struct kind {
    const char *name;
    int (*act)(void);
    int winners; /* how many succeed in each round; 0: all */
    int refused; /* the errno of the others */
    int prepared; /* 1: the path is there at the start of a round, 2: a file of each process is */
} kinds[] = {
    {"exclusive", exclusive, 1, EEXIST, 0},
    {"together", together, 0, 0, 0},
    {"mkdir", make_directory, 1, EEXIST, 0},
    {"symlink", make_symlink, 1, EEXIST, 0},
    {"link", make_link, 1, EEXIST, 2},
    {"rename", rename_over, 0, 0, 0},
    {"unlink", remove_one, 1, ENOENT, 1},
    {"move", move_away, 1, ENOENT, 1},
};

/* One process looks at what a round has left. */
static void judge(const struct kind *kind)
{
    struct stat found;
    char text[32] = "";
    int won = 0, winner = -1;
    for (int i = 0; i < processes; i++) {
        if (shared->result[i] == 0) {
            won++;
            winner = i;
        } else if (shared->result[i] != kind->refused) {
            if (shared->wrong++ < 5)
                printf("%s: process %d: %s\n", path, i, strerror(shared->result[i]));
        }
    }
    shared->won += won;
    shared->wrong += won != (kind->winners ? kind->winners : processes);
    int there = lstat(path, &found) == 0;
    if (kind->act == remove_one || kind->act == move_away) {
        shared->wrong += there;
        return;
    }
    shared->wrong += !there;
    if (kind->act == exclusive || kind->act == rename_over) {
        int fd = open(path, O_RDONLY);
        shared->wrong += fd < 0 || read(fd, text, sizeof text - 1) <= 0;
        close(fd);
        if (kind->act == exclusive)
            shared->wrong += atoi(text) != winner;
    }
    if (kind->act == together) {
        shared->wrong += found.st_size != processes;
        for (int i = 0; i < processes; i++)
            shared->wrong += shared->inode[i] != found.st_ino;
    }
    if (kind->act == make_link)
        shared->wrong += found.st_nlink != 2;
}

static void clear(const struct kind *kind)
{
    if (kind->act == make_directory)
        rmdir(path);
    else
        unlink(path);
}

int main(int argc, char **argv)
{
    const struct kind *kind = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, argv[1]) == 0)
            kind = &kinds[i];
    if (!kind) {
        fprintf(stderr, "usage: races KIND PROCESSES ROUNDS\n");
        return 2;
    }
    processes = atoi(argv[2]);
    int rounds = atoi(argv[3]), failed = 0;
    must(processes > 0 && processes <= MOST, "PROCESSES");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "mmap");
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->all, &attributes, processes);
    for (int i = 0; i < processes; i++) {
        if (fork() == 0) {
            me = i;
            snprintf(own, sizeof own, "own.%d", me);
            if (kind->prepared == 2)
                touch(own);
            for (int round = 0; round < rounds; round++) {
                snprintf(path, sizeof path, "contested.%d", round);
                if (me == 0 && kind->prepared == 1)
                    touch(path);
                pthread_barrier_wait(&shared->all);
                shared->result[me] = kind->act();
                pthread_barrier_wait(&shared->all);
                if (me == 0) {
                    judge(kind);
                    clear(kind);
                }
                if (kind->act == move_away)
                    unlink(own);
            }
            /* The last round is being judged. */
            pthread_barrier_wait(&shared->all);
            if (kind->prepared == 2)
                unlink(own);
            exit(0);
        }
    }
    for (int i = 0, status; i < processes; i++) {
        wait(&status);
        failed += status != 0;
    }
    printf("%s: %d processes, %d rounds: %lld successes, %lld wrong, %d processes failed\n", kind->name, processes, rounds,
           shared->won, shared->wrong, failed);
    return shared->wrong != 0 || failed != 0;
}
