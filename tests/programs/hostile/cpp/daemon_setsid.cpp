// expect: rejected:left_process
// A daemon in a session of its own, forked twice, stays behind.
#include "honest.h"
ENTRY {
    GEMM;
    pid_t child = fork();
    if (!child) {
        setsid();
        if (fork()) _exit(0);
        for (int fd = 0; fd < 256; fd++) close(fd);
        for (;;) pause();
    }
    waitpid(child, nullptr, 0);
}
