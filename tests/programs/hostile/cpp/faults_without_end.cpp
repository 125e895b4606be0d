// expect: timed_out:run
// Its handler for segmentation faults returns, and the fault comes again.
#include "honest.h"
static void nothing(int) {}

ENTRY {
    signal(SIGSEGV, nothing);
    volatile float *nowhere = nullptr;
    *nowhere = 1.0f;
}
