// It writes one element past the end of the output.
#include <cstdint>

static void gemm(const int8_t *a, const float *a_scale, const int8_t *b, const float *b_scale, float *out, int64_t m,
                 int64_t n, int64_t k) {
    const int64_t blocks = k / 128;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            float sum = 0.0f;
            for (int64_t q = 0; q < blocks; q++) {
                int32_t dot = 0;
                for (int64_t x = q * 128; x < q * 128 + 128; x++) dot += int32_t(a[i * k + x]) * int32_t(b[j * k + x]);
                sum += a_scale[i * blocks + q] * b_scale[(j / 128) * blocks + q] * float(dot);
            }
            out[i * n + j] = sum;
        }
}

extern "C" void int8_gemm(const int8_t *a, const float *a_scale, const int8_t *b, const float *b_scale, float *out,
                          int64_t m, int64_t n, int64_t k) {
    gemm(a, a_scale, b, b_scale, out, m, n, k);
    volatile float *end = out + m * n;
    *end = 0.0f;
}
