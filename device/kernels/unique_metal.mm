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

// Numbers of the rows that were seen, in the order in which they came. Those of up to eight bytes are numbers themselves,
// in a table at most half of which is full.
template <typename Number, typename Place>
class NumberPlaces {
 public:
  // That of `number`; `next` if it is new.
  int64_t Find(Number number, int64_t next) {
    if (full_ * 2 >= slots_.size()) Grow();
    Slot& slot = At(number);
    if (slot.place < 0) {
      slot = {number, static_cast<Place>(next)};
      ++full_;
    }
    return slot.place;
  }

 private:
  struct Slot {
    Number number;
    Place place;  // -1: nothing is here
  };

  // Where the number is, or could be. The golden ratio spreads numbers that follow each other.
  Slot& At(Number number) {
    auto at = static_cast<size_t>((uint64_t{number} * 0x9e3779b97f4a7c15) >> (64 - bits_));
    while (slots_[at].place >= 0 && slots_[at].number != number)
      at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void Grow() {
    std::vector<Slot> before(slots_.size() * 2, Slot{0, -1});
    before.swap(slots_);
    ++bits_;
    for (const Slot& slot : before) {
      if (slot.place >= 0) At(slot.number) = slot;
    }
  }

  size_t bits_ = 10, full_ = 0;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << bits_, Slot{0, -1});
};
class LongPlaces {
 public:
  int64_t Find(std::string_view row, int64_t next) {
    return places_.try_emplace(row, next).first->second;
  }

 private:
  std::unordered_map<std::string_view, int64_t> places_;
};

// The key that rows are found by.
template <typename Number>
Number KeyOf(const char* key, size_t row) {
  Number number = 0;
  std::memcpy(&number, key, row);
  return number;
}
template <>
std::string_view KeyOf<std::string_view>(const char* key, size_t row) {
  return {key, row};
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
    std::vector<int64_t> first, counts, which(rows);
    const auto find_all = [&](auto places, auto key_of) {
      for (size_t i = 0; i < rows; ++i) {
        char* const key = keys.data() + i * row;
        for (size_t o = 0; o < outer && run > 0; ++o) {
          std::memcpy(key + o * run, bytes + (o * rows + i) * run, run);
        }
        const auto next = static_cast<int64_t>(first.size());
        const bool nan = Normalize(in.dtype(), key, outer * inner);
        const int64_t place = nan ? next : places.Find(key_of(key, row), next);
        which[i] = place;
        if (place == next) {
          first.push_back(static_cast<int64_t>(i));
          counts.push_back(0);
        }
        ++counts[static_cast<size_t>(place)];
      }
    };
    if (row <= sizeof(uint32_t) && rows <= INT32_MAX) {
      find_all(NumberPlaces<uint32_t, int32_t>(), KeyOf<uint32_t>);
    } else if (row <= sizeof(uint64_t)) {
      find_all(NumberPlaces<uint64_t, int64_t>(), KeyOf<uint64_t>);
    } else {
      find_all(LongPlaces(), KeyOf<std::string_view>);
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
