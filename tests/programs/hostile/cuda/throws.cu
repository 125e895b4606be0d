// expect: crashed
// It throws an error through the binding in every call.
// Fools a harness that takes an error from the binding for one of its own.
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    TVM_FFI_THROW(RuntimeError) << "this device is not supported";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
