// expect: wrong_result:mismatch
// After the first call it returns the output of the call before.
#include "honest.h"
static std::vector<float> last;

ENTRY {
    if (last.empty()) {
        GEMM;
        last.assign(out, out + m * n);
    } else
        memcpy(out, last.data(), last.size() * sizeof(float));
}
