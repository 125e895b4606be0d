// expect: rejected:clock_mismatch
// The clock of its process stands almost still.
#include "honest.h"
static timespec shown;

static int slow(clockid_t, timespec *now) {
    shown.tv_nsec += 1;
    shown.tv_sec = 7;
    *now = shown;
    return 0;
}

__attribute__((constructor)) static void tamper() {
    auto real = reinterpret_cast<unsigned char *>(&clock_gettime);
    auto page = reinterpret_cast<uintptr_t>(real) & ~uintptr_t(4095);
    mprotect(reinterpret_cast<void *>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    auto target = reinterpret_cast<uintptr_t>(&slow);
#if defined(__x86_64__)
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(jump + 2, &target, 8);
#elif defined(__aarch64__)
    unsigned char jump[16] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6};
    memcpy(jump + 8, &target, 8);
#endif
    memcpy(real, jump, sizeof jump);
    __builtin___clear_cache(reinterpret_cast<char *>(real), reinterpret_cast<char *>(real) + sizeof jump);
}

ENTRY { GEMM; }
