/* Programs that make it hard. argv[1]: which, argv[2]: a folder. Each writes 100 bytes to "out" at the end. */
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char data[4096];

static void put(const char *name, long n)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0666);
    assert(fd >= 0 && write(fd, data, n) == n && close(fd) == 0);
}

/* Makes an empty file with a size that the handlers may write to. */
static int fd_of_handler;
static volatile long in_handler;

static void handler(int signal)
{
    (void)signal;
    int e = errno;
    for (int i = 0; i < 3; i++)
        if (pwrite(fd_of_handler, data, 10, 0) == 10)
            in_handler++;
    errno = e;
}

static void tick_every_us(long us, void (*f)(int))
{
    struct sigaction a = {.sa_handler = f, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, NULL);
    struct itimerval t = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &t, NULL);
}

static sigjmp_buf back;
static volatile long jumps;

static void jump(int signal)
{
    (void)signal;
    jumps++;
    siglongjmp(back, 1);
}

static volatile int cancellable;

static void *endless(void *arg)
{
    int fd = open("cancelled", O_CREAT | O_RDWR, 0600);
    cancellable = 1;
    pthread_setcanceltype(arg ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, NULL);
    for (;;)
        if (pwrite(fd, data, 10, 0) != 10)
            abort();
    return NULL;
}

static void *opens(void *arg)
{
    for (int i = 0; i < 300; i++) {
        char name[30];
        snprintf(name, sizeof name, "t%ld-%d", (long)arg, i % 10);
        put(name, 1);
        void *m = dlopen("libm.so.6", RTLD_NOW);
        assert(m && dlclose(m) == 0);
    }
    return NULL;
}

static volatile int is_over;

/* Makes files until it is over, and returns how many. */
static void *makes(void *arg)
{
    long made = 0;
    for (; !is_over; made++) {
        char name[40];
        snprintf(name, sizeof name, "d%ld/made-%ld", (long)arg % 5, (long)arg + 10 * made);
        put(name, 10);
        unlink(name);
    }
    return (void *)made;
}

/* Stops the process some times for longer than a lock may be held. Its own calls are none that count. */
static void stop_often(pid_t pid)
{
    for (int i = 0; i < 4; i++) {
        kill(pid, SIGSTOP);
        usleep(1150 * 1000);
        kill(pid, SIGCONT);
        usleep(50 * 1000);
    }
    _exit(0);
}

static void in_child(void (*f)(void))
{
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        f();
        _exit(0);
    }
    int status;
    assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void child_writes(void)
{
    put("child", 30);
}

static void allow_few_calls(void)
{
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_openat), ALLOW(SYS_close), ALLOW(SYS_exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    assert(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

/* Hands over paths that no path is: none at all, memory that is not there, and texts that run into it. */
static void look_astray(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);
    memset(page, 'x', 4096);
    const char *paths[] = {NULL, page + 4096, page, page + 2048};
    for (int i = 0; i < 4; i++) {
        struct stat s;
        int expected = paths[i] == page ? ENAMETOOLONG : EFAULT;
        assert(open(paths[i], O_RDONLY) == -1 && errno == expected);
        assert(fopen(paths[i], "r") == NULL && errno == expected);
        assert(stat(paths[i], &s) == -1 && errno == expected);
        assert(access(paths[i], R_OK) == -1 && errno == expected);
    }
}

int main(int argc, char **argv)
{
    assert(argc == 3 && chdir(argv[2]) == 0);
    const char *mode = argv[1];
    if (!strcmp(mode, "files") || !strcmp(mode, "fewer")) {
        int n = strcmp(mode, "files") ? 5000 : 50000;
        for (int i = 0; i < n; i++) {
            char name[60];
            snprintf(name, sizeof name, "d%d/file-with-a-long-name-%d", i % 5, i);
            put(name, 10 + i % 3);
            unlink(name);
        }
    } else if (!strcmp(mode, "closes")) {
        for (int fd = 0; fd < 1000; fd++)
            close(fd);
        put("again", 5);
        closefrom(0);
    } else if (!strcmp(mode, "signals")) {
        fd_of_handler = open("signalled", O_CREAT | O_RDWR, 0600);
        tick_every_us(50, handler);
        long own = 0;
        for (int i = 0; i < 300000; i++)
            own += pwrite(fd_of_handler, data, 10, 0) == 10;
        tick_every_us(0, SIG_IGN);
        FILE *f = fopen("expected", "w");
        fprintf(f, "%ld %ld", own + in_handler, in_handler);
        fclose(f);
    } else if (!strcmp(mode, "jumps")) {
        int fd = open("jumped", O_CREAT | O_RDWR, 0600);
        /* The first tick must not come before there is a place to jump to. */
        if (sigsetjmp(back, 1) == 0)
            tick_every_us(200, jump);
        while (jumps < 2000)
            if (pwrite(fd, data, 10, 0) != 10)
                abort();
        tick_every_us(0, SIG_IGN);
        close(fd);
    } else if (!strcmp(mode, "cancels")) {
        for (long i = 0; i < 40; i++) {
            pthread_t t;
            pthread_create(&t, NULL, endless, (void *)(i % 2));
            while (!cancellable)
                usleep(100);
            cancellable = 0;
            usleep(37 * i);
            pthread_cancel(t);
            pthread_join(t, NULL);
        }
        put("cancelled", 10);
    } else if (!strcmp(mode, "threads")) {
        pthread_t t[4];
        for (long i = 0; i < 4; i++)
            pthread_create(&t[i], NULL, opens, (void *)i);
        for (int i = 0; i < 4; i++)
            pthread_join(t[i], NULL);
    } else if (!strcmp(mode, "stopped")) {
        pid_t me = getpid(), pid = fork();
        if (pid == 0)
            stop_often(me);
        pthread_t t[8];
        for (long i = 0; i < 8; i++)
            pthread_create(&t[i], NULL, makes, (void *)i);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
        is_over = 1;
        long all = 0;
        for (int i = 0; i < 8; i++) {
            void *made;
            pthread_join(t[i], &made);
            all += (long)made;
        }
        FILE *f = fopen("expected", "w");
        fprintf(f, "%ld", all);
        fclose(f);
    } else if (!strcmp(mode, "limits")) {
        struct rlimit l;
        assert(getrlimit(RLIMIT_FSIZE, &l) == 0 && l.rlim_cur == 1024);
        assert(getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur == 4);
        signal(SIGXFSZ, SIG_IGN);
        int fd = open("big", O_CREAT | O_WRONLY, 0600);
        assert(write(fd, data, 1024) == 1024 && write(fd, data, 1) == -1 && errno == EFBIG);
        assert(open("more", O_CREAT | O_WRONLY, 0600) == -1 && errno == EMFILE);
        close(fd);
    } else if (!strcmp(mode, "root")) {
        assert(chroot(".") == 0 && chdir("/") == 0);
        in_child(child_writes);
    } else if (!strcmp(mode, "user")) {
        assert(chmod(".", 0777) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        in_child(child_writes);
    } else if (!strcmp(mode, "bare")) {
        clearenv();
        in_child(child_writes);
    } else if (!strcmp(mode, "strict")) {
        int fd = open("out", O_CREAT | O_RDWR, 0600), in = open("/dev/zero", O_RDONLY);
        assert(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
        for (int i = 0; i < 10; i++)
            if (read(in, data, 10) != 10 || write(fd, data, 10) != 10)
                syscall(SYS_exit, 9);
        syscall(SYS_exit, 0);
    } else if (!strcmp(mode, "blind")) {
        int fd = open("blind", O_CREAT | O_WRONLY, 0600);
        /* Long enough for a recorder that reads the processor's counter to have begun with it. */
        for (int i = 0; i < 100000; i++)
            if (pwrite(fd, data, 10, 0) != 10)
                abort();
        assert(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0);
        for (int i = 0; i < 1000; i++)
            if (pwrite(fd, data, 10, 0) != 10)
                abort();
    } else if (!strcmp(mode, "astray")) {
        look_astray();
    } else if (!strcmp(mode, "filter")) {
        int spare = dup(open("shared", O_CREAT | O_RDWR | O_APPEND, 0600));
        put("warm", 1);
        allow_few_calls();
        if (write(spare, data, 40) != 40)
            _exit(8);
        for (int i = 0; i < 3; i++)
            put("filtered", 10);
        int fd = open("out", O_CREAT | O_WRONLY, 0600);
        _exit(write(fd, data, 100) != 100);
    } else {
        assert(!strcmp(mode, "plain"));
    }
    put("out", 100);
    return 0;
}
