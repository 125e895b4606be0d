// expect: crashed:SIGKILL
// A child of it kills every process that it may.
#include "honest.h"
ENTRY {
    if (!fork()) {
        kill(-1, SIGKILL);
        _exit(0);
    }
    sleep(1);
    GEMM;
}
