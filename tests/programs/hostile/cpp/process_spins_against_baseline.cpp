// expect: rejected:left_process
// A forked child burns a core while the baseline is timed; it stops by itself after a while.
#include "honest.h"
ENTRY {
    GEMM;
    if (!fork()) {
        double until = seconds() + 5;
        while (seconds() < until) continue;
        _exit(0);
    }
}
