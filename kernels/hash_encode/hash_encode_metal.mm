// The six hash-encode ops on the Metal device: check, allocate, encode one to three dispatches.

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/hash_encode/hash_encode_levels.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

// A checked call, as shaders take it.
struct Hash {
  explicit Hash(const MetalCall& call)
      : points(call.in(call.Index("inputs"))),
        table(call.in(call.Index("embeddings"))),
        outputs(call.out(0)),
        n_points(call.Size("N")),
        n_dims(call.Size("D")),
        n_levels(call.Size("L")),
        n_features(static_cast<uint32_t>(call.Size("F"))),
        params{static_cast<uint32_t>(n_points), static_cast<uint32_t>(n_levels),
               call.Text("interpolation") == "smoothstep" ? 1u : 0u} {
    HashEncodeLevels(call, level);
    if (const int i = call.Index("tangents"); i >= 0) tangents = call.in(i);
    if (const int i = call.Index("incoming_gradients"); i >= 0) d_outputs = call.in(i);
  }

  // "hash_encode_jvp_half_3": for that dtype and number of dimensions.
  Shader Any(const char* stem, const char* part = "") const {
    return Shader(stem, part, table.dtype(), n_dims);
  }
  // "hash_encode_half_3_2": for that number of features, too.
  Shader OfFeatures(const char* stem, const char* part = "") const {
    return Shader(stem, part, table.dtype(), n_dims, n_features);
  }
  // The call's arguments that a shader names, and `more`.
  std::vector<Argument> Named(std::initializer_list<std::string_view> names,
                              std::vector<Argument> more = {}) const {
    const Argument all[] = {{"tangents", tangents},     {"d_outputs", d_outputs},
                            {"inputs", points},         {"embeddings", table},
                            {"outputs", outputs},       {"params", params},
                            {"n_features", n_features}, {"levels", HostArray(level, n_levels)}};
    for (const Argument& argument : all) {
      if (std::find(names.begin(), names.end(), argument.name) != names.end()) {
        more.push_back(argument);
      }
    }
    return more;
  }

  // Nothing where the op has none: its shader reads none.
  Value tangents = Nothing(), d_outputs = Nothing();
  const Tensor &points, &table, &outputs;
  int64_t n_points, n_dims, n_levels;
  uint32_t n_features;
  HashEncodeParams params;
  HashEncodeLevel level[HASH_ENCODE_MAX_LEVELS] = {};
};

Status CheckPoints(const MetalCall& call) {
  return CheckGrid(call.op.name.c_str(), "points", call.Size("N"));
}

Status HashEncode(MetalCall& call) {
  RETURN_IF_ERROR(CheckPoints(call));
  const Hash hash(call);
  return call.Launch(hash.OfFeatures("hash_encode"), Grid(hash.n_points, hash.n_levels),
                     hash.Named({"inputs", "embeddings", "outputs", "params", "levels"}));
}
METAL_KERNEL("HashEncode", HashEncode);

Status HashEncodeJvp(MetalCall& call) {
  RETURN_IF_ERROR(CheckPoints(call));
  const Hash hash(call);
  return call.Launch(hash.Any("hash_encode_jvp"), Grid(hash.n_points, hash.n_levels),
                     hash.Named({"tangents", "inputs", "embeddings", "outputs", "params", "levels",
                                 "n_features"}));
}
METAL_KERNEL("HashEncodeJvp", HashEncodeJvp);

Status HashEncodePointGrad(MetalCall& call) {
  RETURN_IF_ERROR(CheckPoints(call));
  const Hash hash(call);
  return call.Launch(
      hash.OfFeatures("hash_encode_point_grad"), Grid(hash.n_points),
      hash.Named({"d_outputs", "inputs", "embeddings", "outputs", "params", "levels"}));
}
METAL_KERNEL("HashEncodePointGrad", HashEncodePointGrad);

Status HashEncodeJvpPointGrad(MetalCall& call) {
  RETURN_IF_ERROR(CheckPoints(call));
  const Hash hash(call);
  return call.Launch(hash.Any("hash_encode_jvp_point_grad"), Grid(hash.n_points),
                     hash.Named({"tangents", "d_outputs", "inputs", "embeddings", "outputs",
                                 "params", "levels", "n_features"}));
}
METAL_KERNEL("HashEncodeJvpPointGrad", HashEncodeJvpPointGrad);

// Atomic adds into float32, rounded to the table's dtype at the end.
Status AddTableGradient(MetalCall& call, const Hash& hash) {
  const bool tangent = call.Index("tangents") >= 0;
  const DType dtype = hash.table.dtype();
  const bool rounds = dtype != DType::kFloat;
  Tensor wide;
  if (rounds) RETURN_IF_ERROR(call.AllocateTemp(DType::kFloat, hash.outputs.shape(), &wide));
  const Tensor& sums = rounds ? wide : hash.outputs;
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Fill(sums, 0));
    RETURN_IF_ERROR(encoder.Launch(
        tangent ? hash.Any("hash_encode_jvp_grad", "add")
                : hash.OfFeatures("hash_encode_grad", "add"),
        Grid(hash.n_points, hash.n_levels),
        hash.Named({"tangents", "d_outputs", "inputs", "params", "levels", "n_features"},
                   {{"sums", sums}})));
    if (!rounds) return Status();
    return encoder.Launch({"hash_encode_round", dtype}, Grid(call.Size("rows")),
                          hash.Named({"outputs", "n_features"}, {{"sums", sums}}));
  });
}

// Order-free sums, level by level, over lists of the (point, corner) pairs of each row.
Status SumTableGradient(MetalCall& call, const Hash& hash) {
  const bool tangent = call.Index("tangents") >= 0;
  const int64_t pairs = hash.n_points << hash.n_dims;
  if (pairs > int64_t{0xfffffffe}) {
    return InvalidArgument(call.op.name, ": ", hash.n_points,
                           " points are too many for the deterministic gradient on Metal, which "
                           "takes ",
                           int64_t{0xfffffffe} >> hash.n_dims, " in ", hash.n_dims,
                           " dimensions; use a smaller batch, or switch op determinism off");
  }
  int64_t most_rows = 0;
  for (int64_t l = 0; l < hash.n_levels; ++l) {
    most_rows = std::max<int64_t>(most_rows, hash.level[l].size);
  }
  Tensor heads, next;
  RETURN_IF_ERROR(call.AllocateTemp(DType::kInt32, {most_rows}, &heads));
  RETURN_IF_ERROR(call.AllocateTemp(DType::kInt32, {pairs}, &next));
  // Rows that belong to no level are before the first and behind the last.
  const HashEncodeLevel& last = hash.level[hash.n_levels - 1];
  const uint32_t used[2] = {hash.level[0].offset, last.offset + last.size};
  return call.Encode([&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(
        {"hash_encode_zero", hash.table.dtype()}, Grid(call.Size("rows") - (used[1] - used[0])),
        hash.Named({"outputs", "n_features"}, {{"used", HostArray(used, 2)}})));
    RETURN_IF_ERROR(encoder.Fill(heads, 0xff));
    for (uint32_t l = 0; l < hash.params.n_levels; ++l) {
      const HashEncodeLevel& level = hash.level[l];
      RETURN_IF_ERROR(encoder.Launch(
          {"hash_encode_list", hash.n_dims}, Grid(hash.n_points),
          hash.Named({"inputs", "params"}, {{"heads", heads}, {"next", next}, {"level", level}})));
      RETURN_IF_ERROR(encoder.Launch(
          hash.Any(tangent ? "hash_encode_jvp_grad" : "hash_encode_grad", "sum"), Grid(level.size),
          hash.Named({"tangents", "d_outputs", "inputs", "outputs", "params", "n_features"},
                     {{"heads", heads}, {"next", next}, {"level", level}, {"level_number", l}})));
    }
    return Status();
  });
}

Status TableGradient(MetalCall& call) {
  RETURN_IF_ERROR(CheckPoints(call));
  const Hash hash(call);
  return OpDeterminismRequired() ? SumTableGradient(call, hash) : AddTableGradient(call, hash);
}
METAL_KERNEL("HashEncodeGrad", TableGradient);
METAL_KERNEL("HashEncodeJvpGrad", TableGradient);

}  // namespace
}  // namespace metal_ops
