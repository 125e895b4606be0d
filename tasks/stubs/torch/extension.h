// Stands in for PyTorch's header where only device code is compiled: declarations, no behaviour.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace c10 {
enum class ScalarType : int8_t { Byte, Char, Short, Int, Long, Half, Float, Double, Bool, BFloat16 };
struct IntArrayRef {
    IntArrayRef(std::initializer_list<int64_t>) {}
    IntArrayRef(const std::vector<int64_t> &) {}
    int64_t operator[](size_t) const;
    size_t size() const;
};
struct Device { int index() const; bool is_cuda() const; };
struct Half { uint16_t x; };
struct BFloat16 { uint16_t x; };
template <class T> using optional = std::optional<T>;
}  // namespace c10

namespace at {
using c10::BFloat16;
using c10::Half;
using c10::IntArrayRef;
using c10::ScalarType;
struct TensorOptions {
    TensorOptions dtype(ScalarType) const;
    TensorOptions device(c10::Device) const;
    TensorOptions device(const char *) const;
};
struct Tensor {
    template <class T> T *data_ptr() const;
    template <class T> const T *const_data_ptr() const;
    template <class T> T *mutable_data_ptr() const;
    void *data_ptr() const;
    int64_t size(int64_t) const;
    int64_t stride(int64_t) const;
    int64_t numel() const;
    int64_t dim() const;
    int64_t element_size() const;
    IntArrayRef sizes() const;
    IntArrayRef strides() const;
    ScalarType scalar_type() const;
    ScalarType dtype() const;
    c10::Device device() const;
    TensorOptions options() const;
    bool is_cuda() const;
    bool is_contiguous() const;
    bool defined() const;
    Tensor contiguous() const;
    Tensor view(IntArrayRef) const;
    Tensor reshape(IntArrayRef) const;
    Tensor to(ScalarType) const;
    Tensor transpose(int64_t, int64_t) const;
    Tensor t() const;
    Tensor &zero_() const;
    Tensor &copy_(const Tensor &) const;
};
Tensor empty(IntArrayRef, TensorOptions = {});
Tensor zeros(IntArrayRef, TensorOptions = {});
Tensor empty_like(const Tensor &);
Tensor zeros_like(const Tensor &);
namespace cuda {
struct CUDAStream { operator cudaStream_t() const; cudaStream_t stream() const; };
CUDAStream getCurrentCUDAStream(int = -1);
struct CUDAGuard { explicit CUDAGuard(c10::Device) {} };
}  // namespace cuda
}  // namespace at

namespace c10::cuda {
using at::cuda::CUDAGuard;
using at::cuda::CUDAStream;
using at::cuda::getCurrentCUDAStream;
}  // namespace c10::cuda

namespace torch {
using at::empty;
using at::empty_like;
using at::IntArrayRef;
using at::Tensor;
using at::TensorOptions;
using at::zeros;
using at::zeros_like;
using c10::ScalarType;
constexpr ScalarType kInt8 = ScalarType::Char, kChar = ScalarType::Char, kUInt8 = ScalarType::Byte,
                     kInt32 = ScalarType::Int, kInt = ScalarType::Int, kInt64 = ScalarType::Long,
                     kHalf = ScalarType::Half, kFloat16 = ScalarType::Half, kFloat = ScalarType::Float,
                     kFloat32 = ScalarType::Float, kBFloat16 = ScalarType::BFloat16, kDouble = ScalarType::Double,
                     kBool = ScalarType::Bool;
}  // namespace torch

struct StubModule { template <class... A> StubModule &def(const char *, A...) { return *this; } };
#define TORCH_EXTENSION_NAME kernel
#define PYBIND11_MODULE(name, variable) static void stub_module(StubModule &variable)
#define TORCH_CHECK(...) ((void)0)
#define C10_CUDA_CHECK(...) ((void)(__VA_ARGS__))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
#define AT_ASSERTM(...) ((void)0)
