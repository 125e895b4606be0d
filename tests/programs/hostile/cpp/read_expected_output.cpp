// expect: wrong_result:unwritten
// It computes one row and looks for it, with the rows that follow, in the memory of every other process.
#include "honest.h"
ENTRY {
    gemm(a, a_scale, b, b_scale, out, 1, n, k);
    bool found = false;
    for (pid_t pid : others()) {
        if (found) break;
        read_memory(pid, [&](unsigned long, const char *bytes, size_t size) {
            if (size < m * n * sizeof(float)) return;
            for (size_t at = 0; at <= size - m * n * sizeof(float) && !found; at += 16) {
                auto values = reinterpret_cast<const float *>(bytes + at);
                int64_t same = 0;
                while (same < n && std::abs(values[same] - out[same]) < 1e-3f + 1e-4f * std::abs(out[same])) same++;
                if (same < n) continue;
                memcpy(out, values, m * n * sizeof(float));
                found = true;
            }
        });
    }
}
