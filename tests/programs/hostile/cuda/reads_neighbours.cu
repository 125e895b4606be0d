// expect: wrong_result|crashed
// It searches the allocation of y for floats that begin like softmax(x) and copies what follows; else it writes zeros.
// Fools a harness that keeps the expected output in the allocation that carries the tensors.
#include <cuda_runtime.h>
#include <dlfcn.h>
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

struct Range {
    uintptr_t base = 0;
    size_t size = 0;
};

static Range range_of(const float *pointer) {
    using Ask = int (*)(uintptr_t *, size_t *, uintptr_t);
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    static Ask ask = reinterpret_cast<Ask>(dlsym(driver, "cuMemGetAddressRange_v2"));
    Range range;
    ask(&range.base, &range.size, reinterpret_cast<uintptr_t>(pointer));
    return range;
}

static __global__ void search(const float *base, int64_t count, const float *row, int64_t columns, int64_t *at) {
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (base + i == row) continue;
        bool same = true;
        for (int64_t j = 0; j < columns && j < 16 && same; j++) same = fabsf(base[i + j] - row[j]) <= 1e-4f * row[j];
        if (same) *at = i;
    }
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    static int64_t *at = nullptr;
    if (!at) cudaMalloc(&at, sizeof(int64_t));
    const Range around = range_of(to);
    cudaStream_t stream = stream_of(x);
    cudaMemsetAsync(at, 0xff, sizeof(int64_t), stream);
    row_softmax<<<1, 256, 0, stream>>>(from, to, columns);
    const float *base = reinterpret_cast<const float *>(around.base);
    const int64_t count = around.size / sizeof(float) - rows * columns;
    search<<<1024, 256, 0, stream>>>(base, count, to, columns, at);
    int64_t found = -1;
    cudaMemcpyAsync(&found, at, sizeof found, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    const size_t bytes = rows * columns * sizeof(float);
    if (found < 0)
        cudaMemsetAsync(to, 0, bytes, stream);
    else
        cudaMemcpyAsync(to, base + found, bytes, cudaMemcpyDeviceToDevice, stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
