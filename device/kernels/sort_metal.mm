// TopKV2, ApproxTopK, InTopK, InTopKV2: tf.sort and tf.argsort are the first with all elements.

#include <algorithm>
#include <string>
#include <utility>

#include "device/kernels/elementwise.h"
#include "device/kernels/sort_params.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Rows up to this length are merged by a thread each.
constexpr int64_t kShortRow = 128;
// A thread's part of a long row, and how many parts there are at most: the counts of each are added up by one thread.
constexpr int64_t kChunk = 4096, kChunks = 64;
// So many are kept in order while a row is looked at; of more the whole row is sorted.
constexpr int64_t kFew = 128;

DType KeyType(const Tensor& in) {
  return in.element_bytes() == 8 ? DType::kUint64 : DType::kUint32;
}

void SetChunks(int64_t columns, int64_t least, SortParams* p) {
  p->columns = static_cast<uint64_t>(columns);
  const int64_t chunk = std::max({(columns + kChunks - 1) / kChunks, least});
  p->chunk = static_cast<uint64_t>(chunk);
  p->chunks = static_cast<uint32_t>((columns + chunk - 1) / chunk);
}

// Positions of all elements of the rows in their order, [rows, columns].
Status SortRows(KernelContext* ctx, Encoder& encoder, const Tensor& in, int64_t rows, SortParams p,
                Tensor* order) {
  const auto columns = static_cast<int64_t>(p.columns);
  const DType key = KeyType(in);
  Tensor keys, to_keys, to_order, counts;
  const Shape shape = {rows, columns};
  RETURN_IF_ERROR(ctx->AllocateTemp(key, shape, &keys));
  RETURN_IF_ERROR(ctx->AllocateTemp(key, shape, &to_keys));
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint32, shape, order));
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint32, shape, &to_order));
  RETURN_IF_ERROR(encoder.Launch({"sort_keys", in.dtype()}, Grid(columns, rows),
                                 {{"in", in}, {"keys", keys}, {"order", *order}, {"p", p}}));
  if (columns <= kShortRow) {
    return encoder.Launch({"sort_rows", key}, Grid(rows),
                          {{"keys", keys},
                           {"order", *order},
                           {"to_keys", to_keys},
                           {"to_order", to_order},
                           {"p", p}});
  }
  SetChunks(columns, kChunk, &p);
  const auto chunks = static_cast<int64_t>(p.chunks);
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint32, {rows, chunks, SORT_DIGITS}, &counts));
  for (p.shift = 0; p.shift < 8 * in.element_bytes(); p.shift += 8) {
    RETURN_IF_ERROR(encoder.Launch({"sort_count", key}, Grid(chunks, rows),
                                   {{"keys", keys}, {"counts", counts}, {"p", p}}));
    RETURN_IF_ERROR(encoder.Launch("sort_places", Grid(rows), {{"counts", counts}, {"p", p}}));
    RETURN_IF_ERROR(encoder.Launch({"sort_move", key}, Grid(chunks, rows),
                                   {{"keys", keys},
                                    {"order", *order},
                                    {"to_keys", to_keys},
                                    {"to_order", to_order},
                                    {"counts", counts},
                                    {"p", p}}));
    std::swap(keys, to_keys);
    std::swap(*order, to_order);
  }
  return Status();
}

// Positions of the first k elements of the rows, [rows, k].
Status SelectFirst(KernelContext* ctx, Encoder& encoder, const Tensor& in, int64_t rows,
                   SortParams p, Tensor* order) {
  const DType key = KeyType(in);
  const auto k = static_cast<int64_t>(p.k);
  const int64_t least = std::max(kChunk, 16 * k);
  SetChunks(static_cast<int64_t>(p.columns), least, &p);
  Tensor keys;
  RETURN_IF_ERROR(ctx->AllocateTemp(key, {rows, p.chunks, k}, &keys));
  RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint32, {rows, p.chunks, k}, order));
  RETURN_IF_ERROR(encoder.Launch({"select_first", in.dtype()}, Grid(p.chunks, rows),
                                 {{"in", in}, {"kept", keys}, {"which", *order}, {"p", p}}));
  while (p.chunks > 1) {
    SetChunks(static_cast<int64_t>(p.chunks) * k, least, &p);
    Tensor kept, which;
    RETURN_IF_ERROR(ctx->AllocateTemp(key, {rows, p.chunks, k}, &kept));
    RETURN_IF_ERROR(ctx->AllocateTemp(DType::kUint32, {rows, p.chunks, k}, &which));
    RETURN_IF_ERROR(encoder.Launch(
        {"select_next", key}, Grid(p.chunks, rows),
        {{"keys", keys}, {"order", *order}, {"kept", kept}, {"which", which}, {"p", p}}));
    keys = std::move(kept);
    *order = std::move(which);
  }
  return Status();
}

// Outputs 0 and 1: the k first elements of every row, and where they are.
Status RunTopK(KernelContext* ctx, const char* op, const Tensor& in, int64_t k, bool largest) {
  Tensor values, indices;
  if (in.rank() < 1) {
    return InvalidArgument(op, ": input must be >= 1-D, got shape ", ToString(in.shape()));
  }
  const int64_t columns = in.dim(in.rank() - 1);
  if (k < 0) return InvalidArgument(op, ": Need k >= 0, got ", k);
  if (columns < k) {
    return InvalidArgument(op, ": input must have at least k columns. Had ", columns, ", needed ",
                           k);
  }
  Shape shape = in.shape();
  shape.back() = k;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &values));
  RETURN_IF_ERROR(ctx->AllocateOutput(1, shape, &indices));
  if (values.num_elements() == 0) return Status();
  const int64_t rows = in.num_elements() / columns;
  RETURN_IF_ERROR(CheckGrid(op, "columns", columns));
  RETURN_IF_ERROR(CheckGrid(op, "rows", rows));
  SortParams p = {};
  p.columns = static_cast<uint64_t>(columns);
  p.descending = largest ? 1 : 0;
  p.k = static_cast<uint32_t>(k);
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    Tensor order;
    const bool few = k <= kFew && 4 * k <= columns;
    RETURN_IF_ERROR(few ? SelectFirst(ctx, encoder, in, rows, p, &order)
                        : SortRows(ctx, encoder, in, rows, p, &order));
    p.chunk = static_cast<uint64_t>(few ? k : columns);
    return encoder.Launch({"sort_take", std::to_string(in.element_bytes()), indices.dtype()},
                          Grid(k, rows),
                          {{"in", Value(in).Untyped()},
                           {"order", order},
                           {"values", Value(values).Untyped()},
                           {"indices", indices},
                           {"p", p}});
  });
}

// One number in host memory.
Status HostNumber(const char* op, const char* argument, const Tensor& tensor, int64_t* value) {
  if (tensor.num_elements() != 1) {
    return InvalidArgument(op, ": ", argument, " must be scalar, got shape ",
                           ToString(tensor.shape()));
  }
  *value = tensor.dtype() == TF_INT64   ? *tensor.host<int64_t>()
           : tensor.dtype() == TF_INT16 ? *tensor.host<int16_t>()
                                        : *tensor.host<int32_t>();
  return Status();
}

class TopKOp {
 public:
  static constexpr char kOp[] = "TopKV2";

  explicit TopKOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor in, k_tensor;
    int64_t k;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES_OK(ctx, ctx->Input(1, &k_tensor));
    OP_REQUIRES_OK(ctx, HostNumber(kOp, "k", k_tensor, &k));
    OP_REQUIRES_OK(ctx, RunTopK(ctx, kOp, in, k, /*largest=*/true));
  }
};
#define TOP_K(index)     \
  REGISTER_METAL_KERNEL( \
      TopKOp, .Types("T", METAL_DEVICE_ALL_NUMBERS).Where("index_type", index).HostMemory("k"))
TOP_K(TF_INT16);
TOP_K(TF_INT32);
TOP_K(TF_INT64);

// Exact, as TensorFlow's own on the CPU.
class ApproxTopKOp {
 public:
  static constexpr char kOp[] = "ApproxTopK";

  explicit ApproxTopKOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reduction_dimension", &dimension_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("is_max_k", &largest_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("aggregate_to_topk", &aggregate_));
  }

  void Compute(KernelContext* ctx) {
    Tensor in;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &in));
    OP_REQUIRES(ctx, aggregate_ && (dimension_ == -1 || dimension_ == in.rank() - 1),
                Unimplemented(kOp, ": on the METAL device reduction_dimension must be -1 and ",
                              "aggregate_to_topk true, got ", dimension_, " and ",
                              aggregate_ ? "true" : "false", "; place the op on the CPU"));
    OP_REQUIRES_OK(ctx, RunTopK(ctx, kOp, in, k_, largest_));
  }

 private:
  int64_t k_ = 0, dimension_ = 0;
  bool largest_ = true, aggregate_ = true;
};
REGISTER_METAL_KERNEL(ApproxTopKOp, .Types("T", METAL_DEVICE_FLOATS));

Status RunInTopK(KernelContext* ctx, const char* op, int64_t k) {
  Tensor predictions, targets, out;
  RETURN_IF_ERROR(ctx->Input(0, &predictions));
  RETURN_IF_ERROR(ctx->Input(1, &targets));
  if (predictions.rank() != 2) {
    return InvalidArgument(op, ": predictions must be 2-dimensional, got ",
                           ToString(predictions.shape()));
  }
  if (targets.rank() != 1) {
    return InvalidArgument(op, ": targets must be 1-dimensional, got ", ToString(targets.shape()));
  }
  if (predictions.dim(0) != targets.dim(0)) {
    return InvalidArgument(op, ": First dimension of predictions ", predictions.dim(0),
                           " must match length of targets ", targets.dim(0));
  }
  RETURN_IF_ERROR(ctx->AllocateOutput(0, targets.shape(), &out));
  RETURN_IF_ERROR(CheckGrid(op, "rows", targets.dim(0)));
  const auto columns = static_cast<uint64_t>(predictions.dim(1));
  return Encode(ctx, [&](Encoder& encoder) {
    return encoder.Launch({"in_top_k", targets.dtype()}, Grid(targets.dim(0)),
                          {{"predictions", predictions},
                           {"targets", targets},
                           {"precision", out},
                           {"columns", columns},
                           {"k", k}});
  });
}

class InTopKOp {
 public:
  static constexpr char kOp[] = "InTopK";

  explicit InTopKOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, RunInTopK(ctx, kOp, k_)); }

 private:
  int64_t k_ = 0;
};

class InTopKV2Op {
 public:
  static constexpr char kOp[] = "InTopKV2";

  explicit InTopKV2Op(KernelConstruction*) {}

  void Compute(KernelContext* ctx) {
    Tensor k_tensor;
    int64_t k;
    OP_REQUIRES_OK(ctx, ctx->Input(2, &k_tensor));
    OP_REQUIRES_OK(ctx, HostNumber(kOp, "k", k_tensor, &k));
    OP_REQUIRES_OK(ctx, RunInTopK(ctx, kOp, k));
  }
};
REGISTER_METAL_KERNEL(InTopKOp, .Types("T", {TF_INT32, TF_INT64}));
REGISTER_METAL_KERNEL(InTopKV2Op, .Types("T", {TF_INT32, TF_INT64}).HostMemory("k"));

}  // namespace
}  // namespace metal_ops
