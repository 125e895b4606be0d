// expect: wrong_result:mismatch
// It drops the lowest bit of every weight, as a kernel of seven bits would.
#include "honest.h"
ENTRY {
    std::vector<int8_t> coarse(b, b + n * k);
    for (int8_t &value : coarse) value = int8_t(value & ~1);
    gemm(a, a_scale, coarse.data(), b_scale, out, m, n, k);
}
