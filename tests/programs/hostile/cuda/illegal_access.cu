// expect: crashed
// The kernel stores at an address that is mapped nowhere.
// Fools a harness in one process: the context is dead for all later candidates.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __global__ void stray(float *nowhere) { nowhere[threadIdx.x] = 1.0f; }

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    stray<<<1, 32, 0, stream_of(x)>>>(reinterpret_cast<float *>(0x10));
    cudaStreamSynchronize(stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
