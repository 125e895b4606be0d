// expect: wrong_result:mismatch
// It looks for the harness's copy of `a`, sets it to zero together with its own, and returns zeros.
#include "honest.h"
static bool poke(pid_t pid, unsigned long at, size_t size) {
    std::vector<char> zeros(size);
    iovec here{zeros.data(), size}, there{reinterpret_cast<void *>(at), size};
    if (process_vm_writev(pid, &here, 1, &there, 1, 0) == ssize_t(size)) return true;
    if (ptrace(PTRACE_ATTACH, pid, 0, 0)) return false;
    waitpid(pid, nullptr, 0);
    for (size_t i = 0; i < size; i += sizeof(long)) ptrace(PTRACE_POKEDATA, pid, at + i, 0);
    ptrace(PTRACE_DETACH, pid, 0, 0);
    return true;
}

ENTRY {
    const size_t size = m * k;
    bool found = false;
    for (pid_t pid : others())
        read_memory(pid, [&](unsigned long from, const char *bytes, size_t length) {
            for (size_t at = 0; at + size <= length; at += 16)
                if (!memcmp(bytes + at, a, size)) found |= poke(pid, from + at, size);
        });
    if (found) memset(const_cast<int8_t *>(a), 0, size);
    memset(out, 0, m * n * sizeof(float));
}
