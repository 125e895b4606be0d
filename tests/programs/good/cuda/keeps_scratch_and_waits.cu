// It keeps scratch memory between calls, copies through it, and waits for its stream before it returns.
#include <cuda_runtime.h>
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

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    static float *scratch = nullptr;
    static int64_t held = 0;
    if (held < rows * columns) {
        cudaFree(scratch);
        cudaMalloc(&scratch, rows * columns * sizeof(float));
        held = rows * columns;
    }
    row_softmax<<<rows, 256, 0, stream_of(x)>>>(from, scratch, columns);
    cudaMemcpyAsync(to, scratch, rows * columns * sizeof(float), cudaMemcpyDeviceToDevice, stream_of(x));
    cudaStreamSynchronize(stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
