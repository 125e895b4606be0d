// expect: crashed
// The kernel ends with a trap, as a failed assertion does.
// Fools a harness that takes the launch failure for a sick device and gives no verdict.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __global__ void trap() { asm volatile("trap;"); }

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    trap<<<1, 1, 0, stream_of(x)>>>();
    cudaStreamSynchronize(stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
