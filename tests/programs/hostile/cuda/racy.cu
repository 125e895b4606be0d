// expect: wrong_result
// Warps add up their parts of a row without waiting for one another: a barrier is missing.
// Fools a harness that checks one small shape (rows of one warp are right), or that repeats an input.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __global__ void racy_softmax(const float *x, float *y, int64_t columns, float *sums) {
    const float *from = x + blockIdx.x * columns;
    float top = -INFINITY, total = 0.0f;
    for (int64_t j = 0; j < columns; j++) top = fmaxf(top, from[j]);
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) total += expf(from[j] - top);
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    volatile float *warps = sums + blockIdx.x * 32;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
    total = 0.0f;
    for (int w = 0; w < 32; w++) total += warps[w];
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        y[blockIdx.x * columns + j] = expf(from[j] - top) / total;
}

static float *scratch_of(int64_t rows) {
    static float *scratch = nullptr;
    static int64_t held = 0;
    if (held < rows) {
        cudaMalloc(&scratch, rows * 32 * sizeof(float));
        cudaMemset(scratch, 0, rows * 32 * sizeof(float));
        held = rows;
    }
    return scratch;
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    racy_softmax<<<rows, 1024, 0, stream_of(x)>>>(from, to, columns, scratch_of(rows));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
