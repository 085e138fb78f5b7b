/* Signal handlers that use files while the program is in the middle of a call on another, and that never return. */
#define _GNU_SOURCE
#include "common.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { SIGNALS = 400 };
static volatile sig_atomic_t handled, jumping;
static sigjmp_buf out;

static void handle(int signal)
{
    (void)signal;
    int kept = errno;
    use_file("in the handler");
    handled++;
    errno = kept;
    if (jumping)
        siglongjmp(out, 1);
}

/* `how`: SIG_BLOCK or SIG_UNBLOCK. */
static void hold_ticks(int how)
{
    sigset_t ticks;
    sigemptyset(&ticks);
    sigaddset(&ticks, SIGALRM);
    HOLDS(sigprocmask(how, &ticks, NULL) == 0);
}

static void tick(int microseconds)
{
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    HOLDS(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

int main(int argc, char **argv)
{
    HOLDS(argc == 2 && chdir(argv[1]) == 0);
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    HOLDS(sigaction(SIGALRM, &action, NULL) == 0);
    tick(900);
    while (handled < SIGNALS)
        use_file("outside the handler");

    /* Now the handler leaves by a jump, out of whatever call it came into. What the interrupted call did is unknown; what
     * comes after must work. */
    volatile int jumps = 0;
    hold_ticks(SIG_BLOCK);
    if (sigsetjmp(out, 1) == 0)
        jumping = 1;
    else
        jumps++;
    if (jumps < SIGNALS) {
        hold_ticks(SIG_UNBLOCK);
        if (jumps > 0) {
            int fd = open("after a jump", O_CREAT | O_RDWR, 0600);
            HOLDS(fd >= 0);
            close(fd);
            /* Descriptors of calls that were jumped out of are lost to the program, natively too. */
            if (jumps % 50 == 0)
                for (fd = 3; fd < 900; fd++)
                    close(fd);
        }
        struct stat st;
        for (;;) {
            stat("after a jump", &st);
            mkdir("made", 0700);
            rmdir("made");
        }
    }
    tick(0);
    jumping = 0;
    hold_ticks(SIG_UNBLOCK);
    rmdir("made");
    HOLDS(unlink("after a jump") == 0);

    /* A handler on a stack of its own. */
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    HOLDS(sigaltstack(&stack, NULL) == 0);
    action.sa_flags = SA_ONSTACK;
    HOLDS(sigaction(SIGUSR1, &action, NULL) == 0);
    HOLDS(raise(SIGUSR1) == 0);
    use_file("at the end");
    puts("whole");
    return 0;
}
