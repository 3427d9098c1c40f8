// DynamicPartition, DynamicStitch, ParallelDynamicStitch.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "device/kernels/gather_params.h"
#include "device/kernels/layout.h"
#include "device/kernels/segment_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Short rows have a thread each for every element of them.
Status LaunchRows(Encoder& encoder, const char* shader, const Tensor& out, int64_t inner,
                  int64_t rows, Arguments arguments) {
  const bool is_long = inner < GATHER_BLOCK;
  return encoder.Launch(
      {shader, is_long ? "long" : "", std::to_string(out.element_bytes())},
      is_long ? Grid(rows, inner) : Grid((inner + GATHER_BLOCK - 1) / GATHER_BLOCK, rows),
      arguments);
}

// ---- DynamicPartition ---------------------------------------------------------------------------

// Waits, as how many rows each partition has must be known for the results' shapes.
class DynamicPartitionOp {
 public:
  static constexpr char kOp[] = "DynamicPartition";

  explicit DynamicPartitionOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_partitions", &parts_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) const {
    Tensor data, partitions, order;
    RETURN_IF_ERROR(ctx->Input(0, &data));
    RETURN_IF_ERROR(ctx->Input(1, &partitions));
    const size_t rank = partitions.shape().size();
    if (data.shape().size() < rank || Dims(data.shape(), 0, rank) != partitions.shape()) {
      return InvalidArgument(kOp, ": data.shape must start with partitions.shape, got data.shape ",
                             "= ", ToString(data.shape()),
                             ", partitions.shape = ", ToString(partitions.shape()));
    }
    const Shape slice = Dims(data.shape(), rank, data.shape().size());
    const int64_t n = partitions.num_elements(), chunks = std::clamp<int64_t>(n / 4096, 1, 32);
    const auto total = static_cast<uint64_t>(n), chunk = (total + chunks - 1) / chunks;
    std::vector<int64_t> places(static_cast<size_t>(chunks * parts_)), sizes(parts_, 0);
    if (n > 0) {
      ReadBack counts;
      RETURN_IF_ERROR(EncodeAndWait(ctx, [&](Encoder& encoder) -> Status {
        RETURN_IF_ERROR(encoder.Allocate(places.size() * sizeof(int64_t), &counts));
        return encoder.Launch("partition_counts", Grid(chunks),
                              {{"partitions", partitions},
                               {"counts", counts},
                               {"n", total},
                               {"chunk", chunk},
                               {"parts", parts_}});
      }));
      std::copy_n(counts.data<int64_t>(), places.size(), places.begin());
    }
    // Counts become places: partition by partition, in each chunk by chunk.
    int64_t place = 0;
    for (int32_t part = 0; part < parts_; ++part) {
      const int64_t first = place;
      for (int64_t i = 0; i < chunks; ++i) {
        const int64_t count = std::exchange(places[i * parts_ + part], place);
        place += count;
      }
      sizes[part] = place - first;
    }
    if (place != n) {
      return InvalidArgument(kOp, ": ", n - place, " of partitions are not in [0, ", parts_, ")");
    }
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT64, {n}, &order));
    std::vector<Tensor> outs(parts_);
    for (int32_t part = 0; part < parts_; ++part) {
      Shape shape = slice;
      shape.insert(shape.begin(), sizes[part]);
      RETURN_IF_ERROR(ctx->AllocateOutput(part, shape, &outs[part]));
    }
    MoveParams p = {};
    p.inner = static_cast<uint64_t>(NumElements(slice));
    if (n == 0 || p.inner == 0) return Status();
    Tensor at;
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT64, {chunks, parts_}, &at));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(EncodeCopy(encoder, kOp, at.shape(),
                                 HostArray(places.data(), chunks * parts_),
                                 {DenseStrides(at.shape())}, at, {DenseStrides(at.shape())}));
      RETURN_IF_ERROR(encoder.Launch("partition_places", Grid(chunks),
                                     {{"partitions", partitions},
                                      {"places", at},
                                      {"order", order},
                                      {"n", total},
                                      {"chunk", chunk},
                                      {"parts", parts_}}));
      for (int32_t part = 0; part < parts_; ++part) {
        RETURN_IF_ERROR(LaunchRows(encoder, "take_rows", data, static_cast<int64_t>(p.inner),
                                   sizes[part],
                                   {{"in", Value(data).Untyped()},
                                    {"order", order},
                                    {"out", Value(outs[part]).Untyped()},
                                    {"p", p}}));
        p.first += static_cast<uint64_t>(sizes[part]);
      }
      return Status();
    });
  }

  int32_t parts_ = 0;
};
REGISTER_METAL_KERNEL(DynamicPartitionOp, .Types("T", METAL_DEVICE_ALL_TYPES));

// ---- DynamicStitch ------------------------------------------------------------------------------

// For repeated indices the last counts; rows that no index names are zero.
template <typename Op>
class DynamicStitchOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit DynamicStitchOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    const int n = ctx->num_inputs() / 2;
    std::vector<Tensor> indices(n), data(n);
    Shape slice;
    int64_t rows = 0;
    for (int i = 0; i < n; ++i) {
      RETURN_IF_ERROR(ctx->Input(i, &indices[i]));
      RETURN_IF_ERROR(ctx->Input(n + i, &data[i]));
      const size_t rank = indices[i].shape().size();
      const Shape& shape = data[i].shape();
      if (shape.size() < rank || Dims(shape, 0, rank) != indices[i].shape()) {
        return InvalidArgument(kOp, ": data[", i, "].shape = ", ToString(shape),
                               " does not start with indices[", i,
                               "].shape = ", ToString(indices[i].shape()));
      }
      const Shape rest = Dims(shape, rank, shape.size());
      if (i == 0) slice = rest;
      if (rest != slice) {
        return InvalidArgument(kOp, ": Need data[0].shape and data[", i, "].shape to agree after ",
                               "their indices' dimensions, got ", ToString(slice), " and ",
                               ToString(rest));
      }
      for (int64_t k = 0; k < indices[i].num_elements(); ++k) {
        const int32_t row = indices[i].host<int32_t>()[k];
        if (row < 0) {
          return InvalidArgument(kOp, ": indices[", i, "] is out of range: ", row, " < 0");
        }
        rows = std::max<int64_t>(rows, int64_t{row} + 1);
      }
    }
    Tensor out;
    Shape shape = slice;
    shape.insert(shape.begin(), rows);
    RETURN_IF_ERROR(CheckShape(kOp, "the output's shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    MoveParams p = {};
    p.inner = static_cast<uint64_t>(NumElements(slice));
    if (out.num_elements() == 0) return Status();
    // From behind: rows that a later index names are taken.
    std::vector<bool> taken(static_cast<size_t>(rows), false);
    std::vector<std::vector<int32_t>> places(n);
    int64_t covered = 0;
    for (int i = n - 1; i >= 0; --i) {
      places[i].assign(static_cast<size_t>(indices[i].num_elements()), -1);
      for (auto k = static_cast<int64_t>(places[i].size()) - 1; k >= 0; --k) {
        const int32_t row = indices[i].host<int32_t>()[k];
        if (taken[row]) continue;
        taken[row] = true;
        places[i][k] = row;
        ++covered;
      }
    }
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (covered < rows) RETURN_IF_ERROR(EncodeZeros(encoder, kOp, out));
      for (int i = 0; i < n; ++i) {
        const auto count = static_cast<int64_t>(places[i].size());
        RETURN_IF_ERROR(LaunchRows(encoder, "put_rows", out, static_cast<int64_t>(p.inner), count,
                                   {{"in", Value(data[i]).Untyped()},
                                    {"places", HostArray(places[i].data(), count)},
                                    {"out", Value(out).Untyped()},
                                    {"p", p}}));
      }
      return Status();
    });
  }
};
// For repeated indices the parallel one may take any: the same. TensorFlow's own for any device has
// all of it copied to the host.
#define STITCH(op)                           \
  struct op {                                \
    static constexpr char kOp[] = #op;       \
  };                                         \
  REGISTER_METAL_KERNEL(DynamicStitchOp<op>, \
                        .Types("T", METAL_DEVICE_ALL_TYPES).HostMemory("indices"))
STITCH(DynamicStitch);
STITCH(ParallelDynamicStitch);

}  // namespace
}  // namespace metal_ops
