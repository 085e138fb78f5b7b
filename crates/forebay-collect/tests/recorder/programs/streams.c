/* Calls on streams whose counters are known. argv[1]: a folder. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    assert(argc == 2 && chdir(argv[1]) == 0);
    char text[1000];
    memset(text, 'x', sizeof text);

    FILE *f = fopen("plain", "w+");
    assert(f && fwrite(text, 10, 100, f) == 100);
    assert(fputc('a', f) == 'a' && putc('b', f) == 'b' && fputs("hello\n", f) >= 0);
    assert(fprintf(f, "%s %d %.3f %ld\n", "text", 42, 1.5, 1234567890123L) == 28);
    assert(fflush(f) == 0 && fseek(f, 0, SEEK_SET) == 0);
    assert(fread(text, 1, 500, f) == 500);
    assert(fgetc(f) == 'x' && ungetc('y', f) == 'y' && getc(f) == 'y');
    rewind(f);
    assert(fgetc(f) == 'x');
    assert(fclose(f) == 0);

    f = fopen("numbers", "w");
    fputs("1 22 333\nline two\nthree\n", f);
    fclose(f);
    f = fopen("numbers", "r");
    int a, b, c;
    assert(fscanf(f, "%d %d %d\n", &a, &b, &c) == 3 && a + b + c == 356);
    assert(fgets(text, sizeof text, f) && !strcmp(text, "line two\n"));
    char *line = NULL;
    size_t room = 0;
    assert(getline(&line, &room, f) == 6 && getline(&line, &room, f) == -1);
    free(line);
    fclose(f);

    f = fopen("appended", "w");
    fwrite(text, 1, 100, f);
    fclose(f);
    f = fopen("appended", "a");
    fwrite(text, 1, 50, f);
    fclose(f);

    /* A stream on a descriptor, a descriptor of a stream. */
    int fd = open("adopted", O_CREAT | O_RDWR, 0600);
    assert(write(fd, text, 10) == 10);
    f = fdopen(fd, "r+");
    assert(f && fwrite(text, 1, 20, f) == 20);
    fclose(f);
    f = fopen("numbered", "w");
    assert(write(fileno(f), text, 7) == 7);
    fclose(f);

    /* Many arguments, of both sorts, in registers and on the stack. */
    f = fopen("wide", "w");
    int n = fprintf(f, "%d%d%d%d%d%d%d%d|%g%g%g%g%g%g%g%g%g%g|%s", 1, 2, 3, 4, 5, 6, 7, 8, 1., 2., 3., 4., 5., 6., 7.,
                    8., 9., .5, "end");
    fclose(f);
    f = fopen("wide", "r");
    assert(fgets(text, sizeof text, f) && !strcmp(text, "12345678|1234567890.5|end") && n == (int)strlen(text));
    fclose(f);

    printf("%s %d\n", "out", 7);
    puts("put");
    fprintf(stderr, "err\n");
    assert(scanf("%d", &a) == 1 && a == 99);
    return 0;
}
