// expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch
// A host function on a stream of its own waits, then a copy brings the result from scratch memory to y.
// Fools a harness whose events and synchronisation concern its own stream.
#include <chrono>
#include <cuda_runtime.h>
#include <thread>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static __global__ void row_softmax(const float *x, float *y, int64_t columns) {
    __shared__ float part[32];
    const float *from = x + blockIdx.x * columns;
    float *to = y + blockIdx.x * columns;
    float top = -INFINITY, total = 0.0f;
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) top = fmaxf(top, from[j]);
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) top = fmaxf(top, part[w]);
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) total += expf(from[j] - top);
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) total += part[w];
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) to[j] = expf(from[j] - top) / total;
}

static void wait(void *) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    static cudaStream_t own = nullptr;
    static float *scratch = nullptr;
    static int64_t held = 0;
    if (!own) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    if (held < rows * columns) {
        cudaMalloc(&scratch, rows * columns * sizeof(float));
        held = rows * columns;
    }
    cudaLaunchHostFunc(own, wait, nullptr);
    row_softmax<<<rows, 256, 0, own>>>(from, scratch, columns);
    cudaMemcpyAsync(to, scratch, rows * columns * sizeof(float), cudaMemcpyDeviceToDevice, own);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
