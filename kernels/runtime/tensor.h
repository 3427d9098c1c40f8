// An array in memory, as kernels get it. Nothing here knows Metal: encoder.h does.

#ifndef METAL_OPS_KERNELS_RUNTIME_TENSOR_H_
#define METAL_OPS_KERNELS_RUNTIME_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/dtype.h"

namespace metal_ops {

using Shape = std::vector<int64_t>;

// "[3, 4]"
std::string ToString(const Shape& shape);

// Number of elements; -1 if a size is negative, wherever it stands, or it does not fit in 63 bits.
int64_t NumElements(const Shape& shape);

// The memory is the adapter's, whose `owner` is let go of with the tensor. The command buffer
// retains the buffers of its work.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, size_t element_bytes, Shape shape, void* data, size_t bytes, void* owner,
         void (*release)(void*))
      : owner_(owner),
        release_(release),
        data_(data),
        bytes_(bytes),
        n_elements_(NumElements(shape)),
        dtype_(dtype),
        element_bytes_(element_bytes),
        shape_(std::move(shape)) {}
  ~Tensor() {
    if (owner_ != nullptr) release_(owner_);
  }
  Tensor(Tensor&& other) noexcept { Swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Swap(other);
    return *this;
  }

  bool valid() const { return owner_ != nullptr; }
  DType dtype() const { return dtype_; }
  size_t element_bytes() const { return element_bytes_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t num_elements() const { return n_elements_; }
  size_t byte_size() const { return bytes_; }

  // Host memory for arguments that are declared so, else opaque device memory that only
  // ResolveBuffer (metal_buffer.h) may interpret.
  const void* opaque() const { return data_; }

  // Elements of an argument in host memory.
  template <typename T>
  const T* host() const {
    return static_cast<const T*>(data_);
  }
  template <typename T>
  T* mutable_host() const {
    return static_cast<T*>(data_);
  }

 private:
  void Swap(Tensor& other) {
    std::swap(owner_, other.owner_);
    std::swap(release_, other.release_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(n_elements_, other.n_elements_);
    std::swap(dtype_, other.dtype_);
    std::swap(element_bytes_, other.element_bytes_);
    std::swap(shape_, other.shape_);
  }

  void* owner_ = nullptr;
  void (*release_)(void*) = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  int64_t n_elements_ = 0;
  DType dtype_ = DType::kNone;
  size_t element_bytes_ = 0;
  Shape shape_;
};

// Whether results may not depend on the order of the device's threads, as who calls the kernels has
// it. A kernel whose does must then take another path, or answer Unimplemented.
bool OpDeterminismRequired();

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_TENSOR_H_
