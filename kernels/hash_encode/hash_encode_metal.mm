// The six hash-encode ops on the Metal device: check, allocate, encode one to three dispatches.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/encoder.h"
#include "kernels/common/registrar.h"
#include "kernels/hash_encode/hash_encode_checks.h"
#include "kernels/hash_encode/hash_encode_levels.h"

namespace metal_ops {
namespace {

using In = HashEncodeInput;

// One call after checking. Tensors that the op does not take stay empty.
struct Call {
  Tensor tangents, incoming, points, table;
  HashEncodeSizes sizes;
  HashEncodeParams params = {};
  uint32_t n_features = 0;
  HashEncodeLevel level[HASH_ENCODE_MAX_LEVELS] = {};
  TF_DataType dtype = TF_FLOAT;

  // "hash_encode_jvp_half_3": for that dtype and number of dimensions.
  Shader Any(const char* stem, const char* part = "") const {
    return Shader(stem, part, dtype, sizes.n_dims);
  }
  // "hash_encode_half_3_2": for that number of features, too.
  Shader OfFeatures(const char* stem, const char* part = "") const {
    return Shader(stem, part, dtype, sizes.n_dims, sizes.n_features);
  }
  // Without tangents the shader reads none.
  Value tangent_values() const { return tangents.valid() ? Value(tangents) : Value(Nothing()); }
  Value levels() const { return HostArray(level, sizes.n_levels); }
};

// What the six share. `Op` names the op and its inputs in order.
template <typename Op>
class HashEncodeBase {
 public:
  explicit HashEncodeBase(KernelConstruction* ctx) {
    std::string interpolation, grid_kind;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("log2_per_level_scale", &attrs_.log2_per_level_scale));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("resolution_coarsest", &attrs_.resolution_coarsest));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("interpolation", &interpolation));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("grid_kind", &grid_kind));
    attrs_.smoothstep = interpolation == "smoothstep";
    attrs_.dense = grid_kind == "dense";
    const std::string error = CheckHashEncodeAttrs(Op::kOp, attrs_);
    OP_REQUIRES(ctx, error.empty(), InvalidArgument(error));
  }

  void Compute(KernelContext* ctx) {
    Call call;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &call));
    OP_REQUIRES_OK(ctx, static_cast<Op*>(this)->Run(ctx, call));
  }

 private:
  Status Prepare(KernelContext* ctx, Call* call) {
    const std::vector<In> inputs = Op::Inputs();
    std::vector<PartialShape> shapes;
    Tensor offsets;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor* tensor = &offsets;
      if (inputs[i] == In::kTangents) tensor = &call->tangents;
      if (inputs[i] == In::kIncoming) tensor = &call->incoming;
      if (inputs[i] == In::kPoints) tensor = &call->points;
      if (inputs[i] == In::kTable) tensor = &call->table;
      RETURN_IF_ERROR(ctx->Input(static_cast<int>(i), tensor));
      shapes.push_back({true, tensor->shape()});
    }
    std::string error = CheckHashEncodeShapes({Op::kOp, inputs}, shapes, &call->sizes);
    if (!error.empty()) return InvalidArgument(error);
    const HashEncodeSizes& sizes = call->sizes;
    const int32_t* first_rows = offsets.host<int32_t>();
    error = CheckHashEncodeOffsets(Op::kOp, attrs_, first_rows, sizes.n_levels, sizes.n_rows);
    if (!error.empty()) return InvalidArgument(error);
    RETURN_IF_ERROR(CheckGrid(Op::kOp, "points", sizes.n_points));

    HashEncodeLevels(static_cast<int>(sizes.n_dims), static_cast<int>(sizes.n_levels),
                     attrs_.log2_per_level_scale, attrs_.resolution_coarsest, attrs_.dense,
                     first_rows, call->level);
    call->dtype = call->table.dtype();
    call->params.n_points = static_cast<uint32_t>(sizes.n_points);
    call->n_features = static_cast<uint32_t>(sizes.n_features);
    call->params.n_levels = static_cast<uint32_t>(sizes.n_levels);
    call->params.smoothstep = attrs_.smoothstep ? 1 : 0;
    return Status();
  }

  HashEncodeAttrs attrs_;
};

// ---- encodings
// --------------------------------------------------------------------------------------------------------

Status AllocateEncoding(KernelContext* ctx, const Call& call, Tensor* outputs) {
  return ctx->AllocateOutput(0, {call.sizes.n_points, call.sizes.n_levels * call.sizes.n_features},
                             outputs);
}

class HashEncodeOp : public HashEncodeBase<HashEncodeOp> {
 public:
  static constexpr char kOp[] = "HashEncode";
  static std::vector<In> Inputs() { return {In::kPoints, In::kTable, In::kOffsets}; }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    Tensor outputs;
    RETURN_IF_ERROR(AllocateEncoding(ctx, call, &outputs));
    if (outputs.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(call.OfFeatures("hash_encode"),
                            Grid(call.sizes.n_points, call.sizes.n_levels),
                            {{"inputs", call.points},
                             {"embeddings", call.table},
                             {"outputs", outputs},
                             {"params", call.params},
                             {"levels", call.levels()}});
    });
  }
};

class HashEncodeJvpOp : public HashEncodeBase<HashEncodeJvpOp> {
 public:
  static constexpr char kOp[] = "HashEncodeJvp";
  static std::vector<In> Inputs() { return {In::kTangents, In::kPoints, In::kTable, In::kOffsets}; }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    Tensor outputs;
    RETURN_IF_ERROR(AllocateEncoding(ctx, call, &outputs));
    if (outputs.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(call.Any("hash_encode_jvp"),
                            Grid(call.sizes.n_points, call.sizes.n_levels),
                            {{"tangents", call.tangents},
                             {"inputs", call.points},
                             {"embeddings", call.table},
                             {"outputs", outputs},
                             {"params", call.params},
                             {"levels", call.levels()},
                             {"n_features", call.n_features}});
    });
  }
};

// ---- gradients of points
// ----------------------------------------------------------------------------------------------

class HashEncodePointGradOp : public HashEncodeBase<HashEncodePointGradOp> {
 public:
  static constexpr char kOp[] = "HashEncodePointGrad";
  static std::vector<In> Inputs() { return {In::kIncoming, In::kPoints, In::kTable, In::kOffsets}; }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    Tensor outputs;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, call.points.shape(), &outputs));
    if (outputs.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(call.OfFeatures("hash_encode_point_grad"), Grid(call.sizes.n_points),
                            {{"incoming", call.incoming},
                             {"inputs", call.points},
                             {"embeddings", call.table},
                             {"outputs", outputs},
                             {"params", call.params},
                             {"levels", call.levels()}});
    });
  }
};

class HashEncodeJvpPointGradOp : public HashEncodeBase<HashEncodeJvpPointGradOp> {
 public:
  static constexpr char kOp[] = "HashEncodeJvpPointGrad";
  static std::vector<In> Inputs() {
    return {In::kTangents, In::kIncoming, In::kPoints, In::kTable, In::kOffsets};
  }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    Tensor outputs;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, call.points.shape(), &outputs));
    if (outputs.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(call.Any("hash_encode_jvp_point_grad"), Grid(call.sizes.n_points),
                            {{"tangents", call.tangents},
                             {"incoming", call.incoming},
                             {"inputs", call.points},
                             {"embeddings", call.table},
                             {"outputs", outputs},
                             {"params", call.params},
                             {"levels", call.levels()},
                             {"n_features", call.n_features}});
    });
  }
};

// ---- gradients of the table
// -------------------------------------------------------------------------------------------

// Atomic adds into float32, rounded to the table's dtype at the end.
Status AddTableGradient(KernelContext* ctx, const Call& call, const char* stem,
                        const Tensor& outputs) {
  const bool rounds = call.dtype != TF_FLOAT;
  Tensor wide;
  if (rounds) RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, outputs.shape(), &wide));
  const Tensor& sums = rounds ? wide : outputs;
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Fill(sums, 0));
    const bool tangent = call.tangents.valid();
    RETURN_IF_ERROR(encoder.Launch(tangent ? call.Any(stem, "add") : call.OfFeatures(stem, "add"),
                                   Grid(call.sizes.n_points, call.sizes.n_levels),
                                   {{"tangents", call.tangent_values()},
                                    {"incoming", call.incoming},
                                    {"inputs", call.points},
                                    {"sums", sums},
                                    {"params", call.params},
                                    {"levels", call.levels()},
                                    {"n_features", call.n_features}}));
    if (!rounds) return Status();
    return encoder.Launch({"hash_encode_round", call.dtype}, Grid(call.sizes.n_rows),
                          {{"sums", sums}, {"outputs", outputs}, {"n_features", call.n_features}});
  });
}

// Order-free sums, level by level, over lists of the (point, corner) pairs of each row.
Status SumTableGradient(KernelContext* ctx, const char* op, const Call& call, const char* stem,
                        const Tensor& outputs) {
  const int64_t pairs = call.sizes.n_points << call.sizes.n_dims;
  if (pairs > int64_t{0xfffffffe}) {
    return InvalidArgument(op, ": ", call.sizes.n_points,
                           " points are too many for the deterministic gradient on Metal, which "
                           "takes ",
                           int64_t{0xfffffffe} >> call.sizes.n_dims, " in ", call.sizes.n_dims,
                           " dimensions; use a smaller batch, or switch op determinism off");
  }
  int64_t most_rows = 0;
  for (int64_t l = 0; l < call.sizes.n_levels; ++l) {
    most_rows = std::max<int64_t>(most_rows, call.level[l].size);
  }
  Tensor heads, next;
  RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT32, {most_rows}, &heads));
  RETURN_IF_ERROR(ctx->AllocateTemp(TF_INT32, {pairs}, &next));
  // Rows that belong to no level are before the first and behind the last.
  const HashEncodeLevel& last = call.level[call.sizes.n_levels - 1];
  const uint32_t used[2] = {call.level[0].offset, last.offset + last.size};
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(
        {"hash_encode_zero", call.dtype}, Grid(call.sizes.n_rows - (used[1] - used[0])),
        {{"outputs", outputs}, {"n_features", call.n_features}, {"used", HostArray(used, 2)}}));
    RETURN_IF_ERROR(encoder.Fill(heads, 0xff));
    for (uint32_t l = 0; l < call.params.n_levels; ++l) {
      const HashEncodeLevel& level = call.level[l];
      RETURN_IF_ERROR(encoder.Launch({"hash_encode_list", call.sizes.n_dims},
                                     Grid(call.sizes.n_points),
                                     {{"inputs", call.points},
                                      {"heads", heads},
                                      {"next", next},
                                      {"params", call.params},
                                      {"level", level}}));
      RETURN_IF_ERROR(encoder.Launch(call.Any(stem, "sum"), Grid(level.size),
                                     {{"tangents", call.tangent_values()},
                                      {"incoming", call.incoming},
                                      {"inputs", call.points},
                                      {"heads", heads},
                                      {"next", next},
                                      {"outputs", outputs},
                                      {"params", call.params},
                                      {"level", level},
                                      {"level_number", l},
                                      {"n_features", call.n_features}}));
    }
    return Status();
  });
}

Status TableGradient(KernelContext* ctx, const char* op, const Call& call, const char* stem) {
  Tensor outputs;
  RETURN_IF_ERROR(ctx->AllocateOutput(0, call.table.shape(), &outputs));
  if (outputs.num_elements() == 0) return Status();
  return OpDeterminismRequired() ? SumTableGradient(ctx, op, call, stem, outputs)
                                 : AddTableGradient(ctx, call, stem, outputs);
}

class HashEncodeGradOp : public HashEncodeBase<HashEncodeGradOp> {
 public:
  static constexpr char kOp[] = "HashEncodeGrad";
  static std::vector<In> Inputs() { return {In::kIncoming, In::kPoints, In::kTable, In::kOffsets}; }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    return TableGradient(ctx, kOp, call, "hash_encode_grad");
  }
};

class HashEncodeJvpGradOp : public HashEncodeBase<HashEncodeJvpGradOp> {
 public:
  static constexpr char kOp[] = "HashEncodeJvpGrad";
  static std::vector<In> Inputs() {
    return {In::kTangents, In::kIncoming, In::kPoints, In::kTable, In::kOffsets};
  }
  using HashEncodeBase::HashEncodeBase;

  Status Run(KernelContext* ctx, const Call& call) {
    return TableGradient(ctx, kOp, call, "hash_encode_jvp_grad");
  }
};

// Per-level scales are worked out on the host, so the offsets stay there.
#define REGISTER_HASH_ENCODE(Kernel) \
  REGISTER_METAL_KERNEL(             \
      Kernel, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("hashmap_offsets"))
REGISTER_HASH_ENCODE(HashEncodeOp);
REGISTER_HASH_ENCODE(HashEncodeGradOp);
REGISTER_HASH_ENCODE(HashEncodePointGradOp);
REGISTER_HASH_ENCODE(HashEncodeJvpOp);
REGISTER_HASH_ENCODE(HashEncodeJvpGradOp);
REGISTER_HASH_ENCODE(HashEncodeJvpPointGradOp);
#undef REGISTER_HASH_ENCODE

}  // namespace
}  // namespace metal_ops
