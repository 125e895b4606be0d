// expect: wrong_result:unwritten
// A handler leaps out of every segmentation fault, so that a broken kernel returns as if nothing had happened.
#include "honest.h"
static sigjmp_buf back;
static void leap(int) { siglongjmp(back, 1); }

ENTRY {
    signal(SIGSEGV, leap);
    if (sigsetjmp(back, 1)) return;
    volatile float *nowhere = nullptr;
    *nowhere = 1.0f;
    GEMM;
}
