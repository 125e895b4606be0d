// expect: crashed:SIGSEGV|crashed:SIGABRT|crashed:SIGILL|crashed:SIGBUS
// It overwrites its own stack frame and those of its callers.
#include "honest.h"
__attribute__((noinline)) static void smash(volatile size_t count) {
    volatile char room[16];
    volatile char *at = room;
    for (size_t i = 0; i < count; i++) at[i] = 0x41;
}

ENTRY { smash(4096); }
