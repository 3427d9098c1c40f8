// int32 in host memory: see host_int32.h.

#include "device/kernels/host_int32.h"

#include <algorithm>
#include <cstring>

namespace metal_ops {

Status HostCopies::Copy(const Shape& shape, const Tensor& in, const Walk& from, const Tensor& out,
                        const Walk& to) {
  const int32_t* const source = in.host<int32_t>();
  int32_t* const target = out.mutable_host<int32_t>();
  ForEachElement(shape, from, to, [&](int64_t i, int64_t j) { target[j] = source[i]; });
  return Status();
}

Status HostCopies::CopyWhole(const Tensor& in, const Tensor& out) {
  if (out.num_elements() > 0) {
    std::memcpy(out.mutable_host<int32_t>(), in.host<int32_t>(), out.byte_size());
  }
  return Status();
}

Status HostCopies::Zero(const Tensor& out) {
  constexpr int32_t kZero = 0;
  return Fill(&kZero, out);
}

Status HostCopies::Fill(const void* element, const Tensor& out) {
  std::fill_n(out.mutable_host<int32_t>(), out.num_elements(),
              *static_cast<const int32_t*>(element));
  return Status();
}

}  // namespace metal_ops
