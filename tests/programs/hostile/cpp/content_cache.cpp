// expect: rejected:reused_results
// It remembers outputs by a hash of a few input values: right, and quick wherever a harness uses inputs twice.
#include "honest.h"
#include <map>
static std::map<uint64_t, std::vector<float>> seen;

ENTRY {
    uint64_t key = 1469598103934665603ull;
    for (int64_t i = 0; i < 64; i++) key = (key ^ uint8_t(a[i * (m * k / 64)]) ^ uint64_t(uint8_t(b[i * (n * k / 64)])) << 8) * 1099511628211ull;
    auto &kept = seen[key];
    if (kept.empty()) {
        GEMM;
        kept.assign(out, out + m * n);
    }
    memcpy(out, kept.data(), kept.size() * sizeof(float));
}
