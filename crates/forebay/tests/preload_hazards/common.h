/* What the hazard programs share: a statement that has to hold, with the place where it did not. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLDS(statement) do { if (!(statement)) { int e_ = errno; \
    dprintf(2, "%s:%d: does not hold: %s (%s)\n", __FILE__, __LINE__, #statement, strerror(e_)); _exit(1); } } while (0)

/* Writes, reads back and removes a file; async-signal-safe. */
#include <fcntl.h>
#include <sys/stat.h>
static inline void use_file(const char *path)
{
    char text[8] = "";
    struct stat st;
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    HOLDS(fd >= 0);
    HOLDS(write(fd, "content", 7) == 7);
    HOLDS(close(fd) == 0);
    HOLDS(stat(path, &st) == 0 && st.st_size == 7);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    HOLDS(fd >= 0);
    HOLDS(read(fd, text, 7) == 7 && strcmp(text, "content") == 0);
    HOLDS(close(fd) == 0);
    HOLDS(unlink(path) == 0);
    HOLDS(stat(path, &st) == -1 && errno == ENOENT);
}
