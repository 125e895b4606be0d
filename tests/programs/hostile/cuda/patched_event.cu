// expect: rejected:clock_mismatch|rejected:tampering|rejected:impossible_time
// cudaEventElapsedTime is overwritten in memory (x86-64) by a function that reports half a microsecond.
// Fools a harness that times with events, in whatever language, in the process of the program.
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/mman.h>
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

static void overwrite(const char *name, void *with) {
    void *target = dlsym(RTLD_DEFAULT, name);
    for (const char *library : {"libcudart.so.13", "libcudart.so.12", "libcuda.so.1"})
        if (void *handle = target ? nullptr : dlopen(library, RTLD_NOW | RTLD_NOLOAD)) target = dlsym(handle, name);
    if (!target) return;
    const uintptr_t page = reinterpret_cast<uintptr_t>(target) & ~uintptr_t(4095);
    if (mprotect(reinterpret_cast<void *>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
    unsigned char code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(code + 2, &with, 8);
    memcpy(target, code, sizeof code);
}

static cudaError_t instant(float *milliseconds, cudaEvent_t, cudaEvent_t) {
    *milliseconds = 0.0005f;
    return cudaSuccess;
}

static const bool patched = [] {
    overwrite("cudaEventElapsedTime", reinterpret_cast<void *>(&instant));
    overwrite("cudaEventElapsedTime_v2", reinterpret_cast<void *>(&instant));
    overwrite("cuEventElapsedTime", reinterpret_cast<void *>(&instant));
    overwrite("cuEventElapsedTime_v2", reinterpret_cast<void *>(&instant));
    return true;
}();

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    row_softmax<<<rows, 256, 0, stream_of(x)>>>(from, to, columns);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
