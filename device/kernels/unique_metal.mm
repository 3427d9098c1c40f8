// UniqueV2, UniqueWithCounts, UniqueWithCountsV2: in host memory, as TensorFlow has Unique on every device.
// How many there are decides the results' shapes, and one is known after the other.

#include <cstring>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Elements of a dtype whose numbers are not equal where their bytes are: makes one zero of two, and finds
// NaN, which equals nothing.
template <typename Bits>
bool Normalize(char* bytes, size_t n, Bits infinity) {
  bool nan = false;
  for (size_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));
    const auto size = static_cast<Bits>(bits << 1) >> 1;
    if (size > infinity) nan = true;
    if (size != 0) continue;
    std::memset(bytes + i * sizeof(Bits), 0, sizeof(Bits));
  }
  return nan;
}
bool Normalize(DType dtype, char* bytes, size_t n) {
  switch (dtype) {
    case DType::kHalf:
      return Normalize<uint16_t>(bytes, n, 0x7c00);
    case DType::kBfloat16:
      return Normalize<uint16_t>(bytes, n, 0x7f80);
    case DType::kFloat:
      return Normalize<uint32_t>(bytes, n, 0x7f800000);
    case DType::kDouble:
      return Normalize<uint64_t>(bytes, n, 0x7ff0000000000000);
    default:
      return false;
  }
}

template <typename Op>
class UniqueOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit UniqueOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in, out;
    RETURN_IF_ERROR(ctx->Input(0, &in));
    size_t axis = 0;
    Shape axes;
    if (Op::kAxis) {
      Tensor given;
      RETURN_IF_ERROR(ctx->Input(1, &given));
      RETURN_IF_ERROR(Indices(kOp, "axis", given, &axes));
    }
    if (axes.empty() && in.rank() != 1) {
      return InvalidArgument(kOp, ": x must be a vector where there is no axis, got ",
                             ToString(in.shape()));
    }
    if (!axes.empty()) {
      const int64_t rank = in.rank();
      if (axes.size() != 1 || axes[0] < -rank || axes[0] >= rank) {
        return InvalidArgument(kOp, ": axis must be one number in [", -rank, ", ", rank, "), got ",
                               ToString(axes));
      }
      axis = static_cast<size_t>((axes[0] + rank) % rank);
    }
    // [outer, rows, inner], and each row's elements side by side.
    const auto rows = static_cast<size_t>(in.shape()[axis]);
    const auto outer = static_cast<size_t>(NumElements(Dims(in.shape(), 0, axis)));
    const auto inner =
        static_cast<size_t>(NumElements(Dims(in.shape(), axis + 1, in.shape().size())));
    const size_t run = inner * in.element_bytes(), row = outer * run;
    const char* const bytes = in.host<char>();
    std::vector<char> keys(rows * row);
    std::unordered_map<std::string_view, int64_t> places;
    std::vector<int64_t> first, counts, which(rows);
    for (size_t i = 0; i < rows; ++i) {
      char* const key = keys.data() + i * row;
      for (size_t o = 0; o < outer && run > 0; ++o) {
        std::memcpy(key + o * run, bytes + (o * rows + i) * run, run);
      }
      const auto next = static_cast<int64_t>(first.size());
      const bool nan = Normalize(in.dtype(), key, outer * inner);
      const int64_t place = nan ? next : places.try_emplace({key, row}, next).first->second;
      which[i] = place;
      if (place == next) {
        first.push_back(static_cast<int64_t>(i));
        counts.push_back(0);
      }
      ++counts[static_cast<size_t>(place)];
    }
    Shape shape = in.shape();
    shape[axis] = static_cast<int64_t>(first.size());
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    char* const to = out.mutable_host<char>();
    for (size_t o = 0; o < outer && run > 0; ++o) {
      for (size_t i = 0; i < first.size(); ++i) {
        std::memcpy(to + (o * first.size() + i) * run,
                    bytes + (o * rows + static_cast<size_t>(first[i])) * run, run);
      }
    }
    RETURN_IF_ERROR(Write(ctx, 1, which));
    return Op::kCounts ? Write(ctx, 2, counts) : Status();
  }

  static Status Write(KernelContext* ctx, int output, const std::vector<int64_t>& values) {
    Tensor out;
    RETURN_IF_ERROR(ctx->AllocateOutput(output, {static_cast<int64_t>(values.size())}, &out));
    for (size_t i = 0; i < values.size(); ++i) {
      if (out.dtype() == TF_INT64) {
        out.mutable_host<int64_t>()[i] = values[i];
      } else {
        out.mutable_host<int32_t>()[i] = static_cast<int32_t>(values[i]);
      }
    }
    return Status();
  }
};
#define UNIQUE(op, axis, counts)            \
  struct op {                               \
    static constexpr char kOp[] = #op;      \
    static constexpr bool kAxis = axis;     \
    static constexpr bool kCounts = counts; \
  }
UNIQUE(UniqueV2, true, false);
UNIQUE(UniqueWithCounts, false, true);
UNIQUE(UniqueWithCountsV2, true, true);
#define REGISTER_UNIQUE(op, ...)                                                                   \
  REGISTER_METAL_KERNEL(UniqueOp<op>, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_DOUBLE,      \
                                                   TF_BOOL, TF_INT8, TF_INT16, TF_INT32, TF_INT64, \
                                                   TF_UINT8, TF_UINT16, TF_UINT32, TF_UINT64})     \
                                          .HostMemory("x")                                         \
                                          .HostMemory("y")                                         \
                                          .HostMemory("idx") __VA_ARGS__)
REGISTER_UNIQUE(UniqueV2, .HostMemory("axis"));
REGISTER_UNIQUE(UniqueWithCounts, .HostMemory("count"));
REGISTER_UNIQUE(UniqueWithCountsV2, .HostMemory("axis").HostMemory("count"));

}  // namespace
}  // namespace metal_ops
