// expect: wrong_result
// Exponentials are taken in half precision (ex2.approx.f16).
// Fools a harness with a tolerance of 1e-2.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

static cudaStream_t stream_of(const tvm::ffi::TensorView &x) {
    return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

static __device__ float power(float value) { return __half2float(hexp2(__float2half(value * 1.4426950408889634f))); }

static __global__ void half_softmax(const float *x, float *y, int64_t columns) {
    __shared__ float part[256];
    const float *from = x + blockIdx.x * columns;
    float top = -INFINITY, total = 0.0f;
    for (int64_t j = 0; j < columns; j++) top = fmaxf(top, from[j]);
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) total += power(from[j] - top);
    part[threadIdx.x] = total;
    __syncthreads();
    total = 0.0f;
    for (int t = 0; t < blockDim.x; t++) total += part[t];
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
        y[blockIdx.x * columns + j] = power(from[j] - top) / total;
}

static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t rows, int64_t columns) {
    const float *from = static_cast<const float *>(x.data_ptr());
    float *to = static_cast<float *>(y.data_ptr());
    half_softmax<<<rows, 256, 0, stream_of(x)>>>(from, to, columns);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax, run);
