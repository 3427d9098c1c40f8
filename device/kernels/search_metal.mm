// LowerBound, UpperBound, Bucketize, HistogramFixedWidth, Bincount, DenseBincount, RaggedBincount.

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/sort_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

SearchParams PlanSearch(int64_t sorted, int64_t values) {
  SearchParams p = {static_cast<uint64_t>(values), static_cast<uint32_t>(sorted), 0};
  if (sorted > 0) {
    for (p.top = 1; p.top <= p.sorted / 2;) p.top *= 2;
  }
  return p;
}

template <typename Op>
class BoundOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit BoundOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor sorted, values, out;
    RETURN_IF_ERROR(ctx->Input(0, &sorted));
    RETURN_IF_ERROR(ctx->Input(1, &values));
    if (sorted.rank() != 2 || values.rank() != 2 || sorted.dim(0) != values.dim(0)) {
      return InvalidArgument(kOp, ": sorted_inputs and values must be matrices with as many rows, ",
                             "got ", ToString(sorted.shape()), " and ", ToString(values.shape()));
    }
    if (sorted.dim(1) >= std::numeric_limits<int32_t>::max()) {
      return InvalidArgument(kOp, ": sorted_inputs may have less than 2^31 columns, got ",
                             sorted.dim(1), "; place the op on the CPU");
    }
    RETURN_IF_ERROR(CheckGrid(kOp, "values", values.dim(1)));
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", values.dim(0)));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, values.shape(), &out));
    const SearchParams p = PlanSearch(sorted.dim(1), values.dim(1));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({Op::kShader, values.dtype(), out.dtype()},
                            Grid(values.dim(1), values.dim(0)),
                            {{"sorted", sorted}, {"values", values}, {"out", out}, {"p", p}});
    });
  }
};
struct LowerBound {
  static constexpr char kOp[] = "LowerBound";
  static constexpr char kShader[] = "search_lower";
};
struct UpperBound {
  static constexpr char kOp[] = "UpperBound";
  static constexpr char kShader[] = "search_upper";
};
#define FOR_BOTH(Kernel, attr, ...)                                 \
  REGISTER_METAL_KERNEL(Kernel, __VA_ARGS__.Where(attr, TF_INT32)); \
  REGISTER_METAL_KERNEL(Kernel, __VA_ARGS__.Where(attr, TF_INT64))
#define BOUND(op) FOR_BOTH(BoundOp<op>, "out_type", .Types("T", METAL_DEVICE_ALL_NUMBERS))
BOUND(LowerBound);
BOUND(UpperBound);

class BucketizeOp {
 public:
  static constexpr char kOp[] = "Bucketize";

  explicit BucketizeOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("boundaries", &boundaries_));
    OP_REQUIRES(ctx, std::is_sorted(boundaries_.begin(), boundaries_.end()),
                InvalidArgument("Bucketize: Expected sorted boundaries"));
  }

  void Compute(KernelContext* ctx) {
    Tensor in, out;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, in.shape(), &out));
    OP_REQUIRES_OK(ctx, CheckGrid(kOp, "elements", in.num_elements()));
    const auto n = static_cast<int64_t>(boundaries_.size());
    const SearchParams p = PlanSearch(n, in.num_elements());
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) {
                     return encoder.Launch({"bucketize", in.dtype()}, Grid(in.num_elements()),
                                           {{"boundaries", HostArray(boundaries_.data(), n)},
                                            {"in", in},
                                            {"out", out},
                                            {"p", p}});
                   }));
  }

 private:
  std::vector<float> boundaries_;
};
REGISTER_METAL_KERNEL(BucketizeOp, .Types("T", {TF_FLOAT, TF_INT32, TF_INT64}));

// ---- how many of each ---------------------------------------------------------------------------

// bins [batch, size] of indices [batch, n]; weights may be nothing.
Status EncodeCount(KernelContext* ctx, Encoder& encoder, const Tensor& indices,
                   const Tensor* weights, int64_t batch, int64_t n, bool binary,
                   const Tensor& out) {
  CountParams p = {};
  const int64_t size = batch == 0 ? 0 : out.num_elements() / batch;
  if (size == 0) return Status();
  // Bins of a thread for itself are written and read once more: not more of them than indices.
  int64_t chunks = std::clamp<int64_t>(n / 4096, 1, 32);
  while (chunks > 1 && chunks * size > n) chunks /= 2;
  p.n = static_cast<uint64_t>(n);
  p.size = static_cast<uint64_t>(size);
  p.chunks = static_cast<uint32_t>(chunks);
  p.chunk = static_cast<uint64_t>((n + chunks - 1) / chunks);
  p.weighted = weights != nullptr ? 1 : 0;
  p.binary = binary ? 1 : 0;
  const DType dtype = Unsigned(out.dtype());
  Tensor bins;
  RETURN_IF_ERROR(ctx->AllocateTemp(dtype, {batch, chunks, size}, &bins));
  RETURN_IF_ERROR(encoder.Launch(
      {"count_chunk", dtype, indices.dtype()}, Grid(chunks, batch),
      {{"indices", indices},
       {"weights", weights != nullptr ? Value(*weights).Untyped() : Value(Nothing())},
       {"bins", bins},
       {"p", p}}));
  return encoder.Launch({"count_join", dtype}, Grid(size, batch),
                        {{"bins", bins}, {"out", Value(out).Untyped()}, {"p", p}});
}

// A size of int32 or int64, in host memory.
Status CountSize(const char* op, const Tensor& tensor, int64_t* size) {
  Shape sizes;
  if (tensor.num_elements() != 1) {
    return InvalidArgument(op, ": size: Shape must be rank 0 but is rank ", tensor.rank());
  }
  RETURN_IF_ERROR(Indices(op, "size", tensor, &sizes));
  *size = sizes[0];
  if (*size >= 0) return Status();
  return InvalidArgument(op, ": size (", *size, ") must be non-negative");
}

// Numbers that are negative, or not less than the size, are left out.
class BincountOp {
 public:
  static constexpr char kOp[] = "Bincount";

  explicit BincountOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor indices, size_tensor, weights, out;
    int64_t size;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(ctx->Input(1, &size_tensor));
    RETURN_IF_ERROR(ctx->Input(2, &weights));
    RETURN_IF_ERROR(CountSize(kOp, size_tensor, &size));
    const bool weighted = weights.num_elements() != 0;
    if (weighted && weights.shape() != indices.shape()) {
      return InvalidArgument(kOp, ": weights must have the shape of arr, ",
                             ToString(indices.shape()), ", or no elements; got ",
                             ToString(weights.shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {size}, &out));
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCount(ctx, encoder, indices, weighted ? &weights : nullptr, 1,
                         indices.num_elements(), /*binary=*/false, out);
    });
  }
};
#define COUNTED {TF_FLOAT, TF_INT32, TF_INT64}
REGISTER_METAL_KERNEL(BincountOp, .Types("T", COUNTED).HostMemory("size"));

class DenseBincountOp {
 public:
  static constexpr char kOp[] = "DenseBincount";

  explicit DenseBincountOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("binary_output", &binary_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor indices, size_tensor, weights, out;
    int64_t size;
    RETURN_IF_ERROR(ctx->Input(0, &indices));
    RETURN_IF_ERROR(ctx->Input(1, &size_tensor));
    RETURN_IF_ERROR(ctx->Input(2, &weights));
    if (indices.rank() != 1 && indices.rank() != 2) {
      return InvalidArgument(kOp, ": Shape must be at most rank 2 but is rank ", indices.rank(),
                             ", and at least 1");
    }
    RETURN_IF_ERROR(CountSize(kOp, size_tensor, &size));
    const bool weighted = weights.num_elements() != 0;
    if (weighted && weights.shape() != indices.shape()) {
      return InvalidArgument(kOp, ": weights must have the shape of input, ",
                             ToString(indices.shape()), ", or no elements; got ",
                             ToString(weights.shape()));
    }
    const bool rows = indices.rank() == 2;
    const int64_t batch = rows ? indices.dim(0) : 1;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, rows ? Shape{batch, size} : Shape{size}, &out));
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCount(ctx, encoder, indices, weighted ? &weights : nullptr, batch,
                         indices.dim(indices.rank() - 1), binary_, out);
    });
  }

  bool binary_ = false;
};
FOR_BOTH(DenseBincountOp, "Tidx", .Types("T", COUNTED).HostMemory("size"));

class RaggedBincountOp {
 public:
  static constexpr char kOp[] = "RaggedBincount";

  explicit RaggedBincountOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("binary_output", &binary_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor splits, indices, size_tensor, weights, out;
    int64_t size;
    RETURN_IF_ERROR(ctx->Input(0, &splits));
    RETURN_IF_ERROR(ctx->Input(1, &indices));
    RETURN_IF_ERROR(ctx->Input(2, &size_tensor));
    RETURN_IF_ERROR(ctx->Input(3, &weights));
    RETURN_IF_ERROR(CountSize(kOp, size_tensor, &size));
    RETURN_IF_ERROR(CheckSplits(splits, indices.num_elements()));
    const bool weighted = weights.num_elements() != 0;
    if (weighted && weights.shape() != indices.shape()) {
      return InvalidArgument(kOp, ": weights must have the shape of values, ",
                             ToString(indices.shape()), ", or no elements; got ",
                             ToString(weights.shape()));
    }
    const int64_t rows = splits.dim(0) - 1;
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", rows));
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", {rows, size}));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {rows, size}, &out));
    if (out.num_elements() == 0) return Status();
    CountParams p = {};
    p.size = static_cast<uint64_t>(size);
    p.weighted = weighted ? 1 : 0;
    p.binary = binary_ ? 1 : 0;
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch({"count_ragged", Unsigned(out.dtype()), indices.dtype()}, Grid(rows),
                            {{"splits", HostArray(splits.host<int64_t>(), rows + 1)},
                             {"indices", indices},
                             {"weights", weighted ? Value(weights).Untyped() : Value(Nothing())},
                             {"out", Value(out).Untyped()},
                             {"p", p}});
    });
  }

  static Status CheckSplits(const Tensor& splits, int64_t values) {
    if (splits.rank() != 1 || splits.num_elements() == 0) {
      return InvalidArgument(kOp, ": splits must be a vector with at least 1 element, got ",
                             ToString(splits.shape()));
    }
    const int64_t* const row = splits.host<int64_t>();
    const int64_t rows = splits.num_elements() - 1;
    if (row[0] != 0) return InvalidArgument(kOp, ": Splits must start with 0, not with ", row[0]);
    for (int64_t i = 0; i < rows; ++i) {
      if (row[i] <= row[i + 1]) continue;
      return InvalidArgument(kOp, ": splits must not go down, got ", row[i + 1], " after ", row[i]);
    }
    if (row[rows] == values) return Status();
    return InvalidArgument(kOp, ": Splits must end with the number of values, got ", row[rows],
                           " instead of ", values);
  }

  bool binary_ = false;
};
FOR_BOTH(RaggedBincountOp, "Tidx", .Types("T", COUNTED).HostMemory("size").HostMemory("splits"));

// ---- HistogramFixedWidth ------------------------------------------------------------------------

// Numbers in their order as integers from 0 on: the interval between two can be halved.
template <typename T>
class Ordered {
 public:
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);

  static Bits Of(T value) {
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (std::is_floating_point_v<T>) return (bits & kSign) != 0 ? ~bits : bits | kSign;
    return bits ^ kSign;
  }
  static T Number(Bits order) {
    Bits bits = order ^ kSign;
    if (std::is_floating_point_v<T>) bits = (order & kSign) != 0 ? order & ~kSign : ~order;
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
};

// The least number of every bin but the first. TensorFlow divides in double, which shaders do not have: where the
// quotient passes a whole number is found here.
template <typename T>
std::vector<T> Boundaries(T low, T high, int64_t bins) {
  const double step =
      (static_cast<double>(high) - static_cast<double>(low)) / static_cast<double>(bins);
  std::vector<T> boundaries(static_cast<size_t>(bins - 1));
  auto from = Ordered<T>::Of(low);
  const auto end = Ordered<T>::Of(high);
  for (int64_t bin = 1; bin < bins; ++bin) {
    const auto reaches = [&](auto order) {
      const double distance =
          static_cast<double>(Ordered<T>::Number(order)) - static_cast<double>(low);
      return distance / step >= static_cast<double>(bin);
    };
    // Around where it should be, twice as far each time.
    const double expected = static_cast<double>(low) + static_cast<double>(bin) * step;
    const auto guess = std::clamp(
        expected < static_cast<double>(high) ? Ordered<T>::Of(static_cast<T>(expected)) : end, from,
        end);
    auto first = from, last = end;
    for (decltype(from) away = 1; away != 0; away *= 2) {
      const bool below = guess - from > away, above = end - guess > away;
      if (below && first == from && !reaches(guess - away)) first = guess - away + 1;
      if (above && last == end && reaches(guess + away)) last = guess + away;
      if ((first != from || !below) && (last != end || !above)) break;
    }
    while (first < last) {
      const auto middle = first + (last - first) / 2;
      if (reaches(middle)) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    boundaries[static_cast<size_t>(bin - 1)] = Ordered<T>::Number(first);
    from = first;
  }
  return boundaries;
}

// Whether the shader's guess is less than half a bin off everywhere, with room for how a GPU rounds: it grows with the number, and so boundaries say it.
template <typename T>
bool NearBoundaries(const std::vector<T>& boundaries, T low, float scale) {
  if (boundaries.empty() || boundaries.size() >= size_t{1} << 22) return false;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const float guess = (static_cast<float>(boundaries[i]) - static_cast<float>(low)) * scale;
    if (!(std::abs(guess - static_cast<float>(i + 1)) < 0.25f)) return false;
  }
  return true;
}

template <typename T>
class HistogramOp {
 public:
  static constexpr char kOp[] = "HistogramFixedWidth";

  explicit HistogramOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor values, range, bins, places, out;
    RETURN_IF_ERROR(ctx->Input(0, &values));
    RETURN_IF_ERROR(ctx->Input(1, &range));
    RETURN_IF_ERROR(ctx->Input(2, &bins));
    if (range.shape() != Shape{2}) {
      return InvalidArgument(kOp, ": value_range should be a vector of 2 elements, got shape ",
                             ToString(range.shape()));
    }
    const T low = range.host<T>()[0], high = range.host<T>()[1];
    if (!(low < high)) {
      return InvalidArgument(kOp, ": value_range should satisfy value_range[0] < value_range[1], ",
                             "but got '[", low, ", ", high, "]'");
    }
    if (bins.rank() != 0 || *bins.host<int32_t>() <= 0) {
      return InvalidArgument(kOp, ": nbins should be a positive number, got shape ",
                             ToString(bins.shape()),
                             bins.rank() == 0 ? StrCat(", ", *bins.host<int32_t>()) : "");
    }
    const int64_t n = values.num_elements(), count = *bins.host<int32_t>();
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", n));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, {count}, &out));
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT32, {n}, &places));
    const std::vector<T> boundaries = Boundaries<T>(low, high, count);
    const auto scale = static_cast<float>(static_cast<double>(count) /
                                          (static_cast<double>(high) - static_cast<double>(low)));
    const auto last = static_cast<int32_t>(count - 1);
    const char* const shader =
        NearBoundaries(boundaries, low, scale) ? "histogram_near" : "histogram_bin";
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch({shader, values.dtype()}, Grid(n),
                                     {{"boundaries", HostArray(boundaries.data(), count - 1)},
                                      {"in", values},
                                      {"out", places},
                                      {"low", low},
                                      {"scale", scale},
                                      {"last", last}}));
      return EncodeCount(ctx, encoder, places, nullptr, 1, n, /*binary=*/false, out);
    });
  }
};
#define HISTOGRAM(type, T)             \
  FOR_BOTH(HistogramOp<type>, "dtype", \
           .Types("T", {T}).HostMemory("value_range").HostMemory("nbins"))
HISTOGRAM(float, TF_FLOAT);
HISTOGRAM(int32_t, TF_INT32);
HISTOGRAM(int64_t, TF_INT64);

}  // namespace
}  // namespace metal_ops
