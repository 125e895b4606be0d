// expect: rejected:busy_after_return
// Threads burn every core from the first call on, so that the baseline is slow.
#include "honest.h"
static void *burn(void *) {
    for (volatile unsigned long turns = 0;; turns = turns + 1) continue;
    return nullptr;
}

ENTRY {
    static bool burning = false;
    for (int i = 0; i < 4 && !burning; i++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, burn, nullptr);
    }
    burning = true;
    GEMM;
}
