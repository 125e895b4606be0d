// expect: rejected:l2_persistence|rejected:tampering|passed:no_gain
// It sets L2 aside for persisting lines and marks x and y as persisting: what it touched survives the flush.
// Fools a harness that flushes L2 by writing a large buffer and then gives the same tensors again.
#include <algorithm>
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
    static bool set = false;
    if (!set) {
        cudaDeviceProp device;
        cudaGetDeviceProperties(&device, 0);
        cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, device.persistingL2CacheMaxSize);
        set = true;
    }
    cudaStreamAttrValue window = {};
    window.accessPolicyWindow.base_ptr = const_cast<float *>(from < to ? from : to);
    window.accessPolicyWindow.num_bytes = std::min<size_t>(2 * rows * columns * sizeof(float), 32 << 20);
    window.accessPolicyWindow.hitRatio = 1.0f;
    window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    window.accessPolicyWindow.missProp = cudaAccessPropertyPersisting;
    cudaStreamSetAttribute(stream_of(x), cudaStreamAttributeAccessPolicyWindow, &window);
    row_softmax<<<rows, 256, 0, stream_of(x)>>>(from, to, columns);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
