// expect: wrong_result:mismatch
// It remembers outputs by the addresses of the inputs.
#include "honest.h"
static const void *known;
static std::vector<float> kept;

ENTRY {
    if (known != a) {
        GEMM;
        kept.assign(out, out + m * n);
        known = a;
    }
    memcpy(out, kept.data(), kept.size() * sizeof(float));
}
