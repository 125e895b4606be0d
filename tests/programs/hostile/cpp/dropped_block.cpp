// expect: wrong_result:mismatch
// It leaves out one block of k in one row alone, where a check by sample would not look.
#include "honest.h"
ENTRY {
    GEMM;
    for (int64_t j = n - 8; j < n; j++) {
        int32_t dot = 0;
        for (int64_t x = k - 128; x < k; x++) dot += int32_t(a[(m - 1) * k + x]) * int32_t(b[j * k + x]);
        out[(m - 1) * n + j] -= a_scale[m * k / 128 - 1] * b_scale[n / 128 * (k / 128) - 1] * float(dot);
    }
}
