// One warp for each row, online: the row is read twice, not three times.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __global__ void warp_softmax(const float *x, float *y, int64_t rows, int64_t columns) {
    const int lane = threadIdx.x % 32;
    const int64_t row = blockIdx.x * int64_t(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const float *from = x + row * columns;
    float top = -INFINITY, total = 0.0f;
    for (int64_t j = lane; j < columns; j += 32) {
        const float value = from[j], higher = fmaxf(top, value);
        total = total * expf(top - higher) + expf(value - higher);
        top = higher;
    }
    float highest = top;
    for (int step = 16; step; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
    total = top == -INFINITY ? 0.0f : total * expf(top - highest);
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    const float scale = 1.0f / total;
    for (int64_t j = lane; j < columns; j += 32) y[row * columns + j] = expf(from[j] - highest) * scale;
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    warp_softmax<<<(rows + 7) / 8, 256, 0, stream_of(x)>>>(from, to, rows, columns);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
