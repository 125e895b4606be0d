// expect: rejected:out_of_bounds_write|crashed|wrong_result
// It zeroes y and the rest of the allocation behind it, up to 64 MiB.
// Fools a harness that keeps the expected output behind the output: zeros equal zeros.
#include <algorithm>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static uintptr_t end_of(const float *pointer) {
    using Range = int (*)(uintptr_t *, size_t *, uintptr_t);
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    static Range range = reinterpret_cast<Range>(dlsym(driver, "cuMemGetAddressRange_v2"));
    uintptr_t base = 0;
    size_t size = 0;
    range(&base, &size, reinterpret_cast<uintptr_t>(pointer));
    return base + size;
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    float *to = static_cast<float *>(y.data_ptr());
    const size_t left = std::min<size_t>(end_of(to) - reinterpret_cast<uintptr_t>(to), 64 << 20);
    cudaMemsetAsync(to, 0, left, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
