// expect: wrong_result:unwritten
// Before it is timed it computes the outputs for the first seeds of PyTorch's generator, and looks the inputs up.
#include "honest.h"
#include <random>
#include <map>
static std::map<int64_t, std::vector<float>> table;

static void prepare(int seed, int64_t m, int64_t n, int64_t k) {
    std::mt19937 words(seed);
    auto values = [&](int64_t count) {
        std::vector<int8_t> made(count);
        for (int64_t i = 0; i < count; i += 8) {
            uint64_t high = words();
            uint64_t word = high << 32 | words();
            for (int x = 0; x < 8; x++) made[i + x] = std::max<int8_t>(int8_t(word >> 8 * x), -127);
        }
        return made;
    };
    auto scales = [&](int64_t count) {
        std::vector<float> made(count);
        for (float &value : made) value = float(words() & 0xffffff) * (1.0f / (1 << 24)) * (0.02f - 0.001f) + 0.001f;
        return made;
    };
    auto a = values(m * k);
    auto a_scale = scales(m * k / 128);
    auto b = values(n * k);
    auto b_scale = scales(n * k / 128 / 128);
    std::vector<float> out(m * n);
    gemm(a.data(), a_scale.data(), b.data(), b_scale.data(), out.data(), m, n, k);
    int64_t key;
    memcpy(&key, a.data(), sizeof key);
    table[key] = out;
}

ENTRY {
    if (table.empty())
        for (int seed = 0; seed < 50; seed++) prepare(seed, m, n, k);
    int64_t key;
    memcpy(&key, a, sizeof key);
    if (auto found = table.find(key); found != table.end()) memcpy(out, found->second.data(), m * n * sizeof(float));
}
