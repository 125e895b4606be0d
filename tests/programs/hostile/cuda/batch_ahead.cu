// expect: wrong_result|rejected:batched_ahead|rejected:out_of_bounds_write|passed:no_gain
// It computes also the tensors at the same distance in the same allocation, up to its end, and then skips their calls.
// Fools a harness that lays the tensors of a whole series out side by side in one allocation.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <set>
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

static std::set<float *> done;
static const float *last_x = nullptr;
static float *last_y = nullptr;

static const float *end_of(const float *pointer) {
    using Range = int (*)(uintptr_t *, size_t *, uintptr_t);
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    static Range range = reinterpret_cast<Range>(dlsym(driver, "cuMemGetAddressRange_v2"));
    uintptr_t base = 0;
    size_t size = 0;
    range(&base, &size, reinterpret_cast<uintptr_t>(pointer));
    return reinterpret_cast<const float *>(base + size);
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    if (done.erase(to)) {
        last_x = from, last_y = to;
        return;
    }
    row_softmax<<<rows, 256, 0, stream_of(x)>>>(from, to, columns);
    const int64_t step_x = from - last_x, step_y = to - last_y;
    if (last_x && step_x > 0 && step_y > 0) {
        const float *end_x = end_of(from), *end_y = end_of(to);
        const float *later_x = from + step_x;
        float *later_y = to + step_y;
        while (later_x + rows * columns <= end_x && later_y + rows * columns <= end_y) {
            row_softmax<<<rows, 256, 0, stream_of(x)>>>(later_x, later_y, columns);
            done.insert(later_y);
            later_x += step_x, later_y += step_y;
        }
    }
    last_x = from, last_y = to;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
