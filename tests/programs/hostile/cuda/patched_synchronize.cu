// expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch|rejected:tampering|crashed:device_error
// The functions that wait for the device are overwritten in memory (x86-64) to return at once; the work comes late.
// Fools a harness that synchronises through the runtime of the program's own process.
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

static cudaError_t at_once(void *) { return cudaSuccess; }

static const bool patched = [] {
    for (const char *name : {"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
                             "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"})
        overwrite(name, reinterpret_cast<void *>(&at_once));
    return true;
}();

static __global__ void pause(int64_t nanoseconds) {
    uint64_t now, begin;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    static cudaStream_t own = nullptr;
    if (!own) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    pause<<<1, 1, 0, own>>>(10'000'000);
    row_softmax<<<rows, 256, 0, own>>>(from, to, columns);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
