/* Every kind of call that the recorder counts and a sanitizer's runtime intercepts as well, from several threads. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 50, PIECE = 100 };

static void *write_own(void *number)
{
    char name[32], piece[PIECE];
    memset(piece, 'a' + (int)(long)number, PIECE);
    snprintf(name, sizeof name, "thread.%ld", (long)number);
    int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (fd < 0)
        exit(10);
    for (int round = 0; round < ROUNDS; round++)
        if (write(fd, piece, PIECE) != PIECE)
            exit(11);
    struct iovec parts[2] = {{piece, 30}, {piece + 30, 70}};
    if (pwritev(fd, parts, 2, 0) != PIECE || pread(fd, piece, PIECE, 0) != PIECE || fsync(fd) != 0)
        exit(12);
    close(fd);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++)
        if (pthread_create(&threads[n], NULL, write_own, (void *)n) != 0)
            return 20;
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);

    FILE *stream = fopen("stream", "w+");
    if (stream == NULL || fprintf(stream, "%06d\n", 42) != 7 || fflush(stream) != 0)
        return 21;
    rewind(stream);
    char line[32], *end = line;
    if (fgets(end, sizeof line, stream) == NULL || fclose(stream) != 0)
        return 22;

    pid_t child = fork();
    if (child == 0) {
        int fd = open("child", O_CREAT | O_WRONLY, 0644);
        _exit(write(fd, "child", 5) == 5 && close(fd) == 0 ? 3 : 4);
    }
    int status, entries = 0;
    if (waitpid(child, &status, 0) != child)
        return 23;
    DIR *folder = opendir(".");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        entries += strncmp(entry->d_name, "thread.", 7) == 0;
    closedir(folder);
    struct stat seen;
    if (stat("thread.0", &seen) != 0 || access("nothing", F_OK) == 0)
        return 24;
    printf("%.6s, %d of a child, %d files of %ld bytes\n", line, WEXITSTATUS(status), entries, (long)seen.st_size);
    return 5;
}
