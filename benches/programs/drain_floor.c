/* The system calls of a drain of small files, and nothing of what a drain has to know or to keep: how fast one could be.
 *
 *     drain_floor SOURCE TARGET THREADS
 *
 * SOURCE has directories with files of at most 4 KiB in them. Each file is copied to a temporary name with its times; the file system of TARGET is
 * synced; each copy is read back after it was dropped from memory; each gets its name after two looks; the file system is synced once more; the
 * files of SOURCE go. Each thread has directories of its own. Prints the seconds of each phase. */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 4096, MOST_DIRS = 4096, MOST_THREADS = 64 };

struct dir { int from, to, count; char **names; };

static struct dir dirs[MOST_DIRS];
static int dir_count, thread_count;
static void (*work)(const struct dir *, const char *name, const char *temporary);

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static int opened(int dir, const char *name, int flags)
{
    int fd = openat(dir, name, flags, 0644);
    if (fd < 0)
        err(1, "open %s", name);
    return fd;
}

static void copy(const struct dir *dir, const char *name, const char *temporary)
{
    char bytes[LARGEST];
    struct stat it;
    int from = opened(dir->from, name, O_RDONLY);
    ssize_t length = read(from, bytes, sizeof bytes);
    int to = opened(dir->to, temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (fstat(from, &it) || length < 0 || write(to, bytes, length) != length)
        err(1, "copy %s", name);
    struct timespec times[2] = {it.st_atim, it.st_mtim};
    if (futimens(to, times) || close(from) || close(to))
        err(1, "copy %s", name);
}

static void verify(const struct dir *dir, const char *name, const char *temporary)
{
    char bytes[LARGEST], copied[LARGEST];
    int from = opened(dir->from, name, O_RDONLY), to = opened(dir->to, temporary, O_RDONLY);
    posix_fadvise(to, 0, 0, POSIX_FADV_DONTNEED);
    ssize_t length = read(from, bytes, sizeof bytes);
    if (length < 0 || read(to, copied, sizeof copied) != length || memcmp(bytes, copied, length))
        errx(1, "%s is not what was copied", name);
    close(from);
    close(to);
}

static void give_name(const struct dir *dir, const char *name, const char *temporary)
{
    struct stat it;
    if (!fstatat(dir->to, name, &it, 0) || fstatat(dir->to, temporary, &it, 0)
        || renameat2(dir->to, temporary, dir->to, name, RENAME_NOREPLACE))
        err(1, "rename %s", name);
}

static void release(const struct dir *dir, const char *name, const char *temporary)
{
    (void)temporary;
    if (unlinkat(dir->from, name, 0))
        err(1, "unlink %s", name);
}

static void *run(void *argument)
{
    for (int d = (int)(long)argument; d < dir_count; d += thread_count)
        for (int n = 0; n < dirs[d].count; n++) {
            char temporary[300];
            snprintf(temporary, sizeof temporary, ".floor-%s", dirs[d].names[n]);
            work(&dirs[d], dirs[d].names[n], temporary);
        }
    return NULL;
}

static void phase(const char *what, void (*each)(const struct dir *, const char *, const char *))
{
    pthread_t threads[MOST_THREADS];
    double begun = now();
    work = each;
    for (long n = 0; n < thread_count; n++)
        if (pthread_create(&threads[n], NULL, run, (void *)n))
            errx(1, "no thread");
    for (int n = 0; n < thread_count; n++)
        pthread_join(threads[n], NULL);
    printf("%s %.2f ", what, now() - begun);
}

static void sync_all(int target)
{
    double begun = now();
    if (syncfs(target))
        err(1, "syncfs");
    printf("sync %.2f ", now() - begun);
}

static void read_tree(int source, int target)
{
    struct dirent *entry;
    DIR *top = fdopendir(dup(source));
    while ((entry = readdir(top))) {
        if (entry->d_name[0] == '.' || entry->d_type != DT_DIR)
            continue;
        if (dir_count == MOST_DIRS)
            errx(1, "too many directories");
        struct dir *dir = &dirs[dir_count++];
        if (mkdirat(target, entry->d_name, 0755))
            err(1, "mkdir %s", entry->d_name);
        dir->from = opened(source, entry->d_name, O_RDONLY | O_DIRECTORY);
        dir->to = opened(target, entry->d_name, O_RDONLY | O_DIRECTORY);
        DIR *in = fdopendir(dup(dir->from));
        struct dirent *file;
        while ((file = readdir(in)))
            if (file->d_type == DT_REG) {
                dir->names = realloc(dir->names, (dir->count + 1) * sizeof *dir->names);
                dir->names[dir->count++] = strdup(file->d_name);
            }
        closedir(in);
    }
    closedir(top);
}

int main(int count, char **words)
{
    if (count != 4 || (thread_count = atoi(words[3])) < 1 || thread_count > MOST_THREADS)
        errx(2, "usage: drain_floor SOURCE TARGET THREADS");
    int source = opened(AT_FDCWD, words[1], O_RDONLY | O_DIRECTORY);
    int target = opened(AT_FDCWD, words[2], O_RDONLY | O_DIRECTORY);
    double begun = now();
    read_tree(source, target);
    phase("copy", copy);
    sync_all(target);
    phase("read back", verify);
    phase("name", give_name);
    sync_all(target);
    phase("release", release);
    printf("all %.2f\n", now() - begun);
    return 0;
}
