// expect: timed_out
// The kernel never ends.
// Fools a harness that synchronises without a limit: a kernel cannot be interrupted, its process must die.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __global__ void endless(volatile float *y) {
    while (true) *y = clock();
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    float *to = static_cast<float *>(y.data_ptr());
    endless<<<1, 32, 0, stream_of(x)>>>(to);
    cudaStreamSynchronize(stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
