// expect: crashed:SIGSEGV
// It writes to address 0.
#include "honest.h"
ENTRY {
    volatile float *nowhere = nullptr;
    *nowhere = 1.0f;
}
