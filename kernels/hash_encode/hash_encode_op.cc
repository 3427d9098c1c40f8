// HashEncode and its five derivative ops: the multiresolution hash table of instant-ngp (Mueller et
// al. 2022).
//
//   op                      is                            called by the gradient of
//   HashEncode              y = enc(x, E)                 -
//   HashEncodeGrad          dE of <g, y>                  HashEncode wrt embeddings
//   HashEncodePointGrad     dx of <g, y>                  HashEncode wrt inputs
//   HashEncodeJvp           J v = sum_d v_d dy/dx_d       HashEncodePointGrad wrt g
//   HashEncodeJvpGrad       dE of <g, J v>                HashEncodePointGrad wrt embeddings
//   HashEncodeJvpPointGrad  dx of <g, J v>                HashEncodePointGrad wrt inputs

#include "kernels/hash_encode/hash_encode_levels.h"
#include "kernels/runtime/gradient.h"

namespace metal_ops {
namespace {

void CheckGrowth(OpCall& call) {
  const float growth = call.Float("log2_per_level_scale");
  call.shapes.Require(std::isfinite(growth),
                      "log2_per_level_scale must be finite, got " + ToText(growth) + ".");
}

// The values of hashmap_offsets, and that every level's resolution is usable.
void CheckOffsets(OpCall& call, const int32_t* offsets, int64_t n_levels) {
  const auto require = [&](bool good, const std::string& expected, const std::string& got) {
    if (good) return;
    call.shapes.Require(false, "hashmap_offsets must " + expected + ", got " + got + ".");
  };
  require(offsets[0] >= 0, "start at 0 or above", std::to_string(offsets[0]));
  for (int64_t l = 0; l < n_levels; ++l) {
    require(offsets[l + 1] > offsets[l], "increase from level to level (no level may be empty)",
            std::to_string(offsets[l]) + " then " + std::to_string(offsets[l + 1]) + " at level " +
                std::to_string(l));
  }
  const int64_t n_rows = call.Size("rows");
  require(n_rows < 0 || offsets[n_levels] <= n_rows,
          "end within the " + std::to_string(n_rows) + " rows of embeddings",
          std::to_string(offsets[n_levels]));
  const float growth = call.Float("log2_per_level_scale");
  const int64_t base = call.Int("resolution_coarsest");
  for (int64_t l = 0; l < n_levels; ++l) {
    const float scale = HashEncodeScale(static_cast<int>(l), growth, base);
    if (HashEncodeScaleIsUsable(scale)) continue;
    call.shapes.Require(false, "log2_per_level_scale = " + ToText(growth) +
                                   " and resolution_coarsest = " + std::to_string(base) +
                                   " must give every level a resolution from 1 to 2^31, got a "
                                   "scale of " +
                                   ToText(scale) + " at level " + std::to_string(l) + ".");
  }
}

void CheckGrid(OpCall& call) {
  // While a graph is built too, where they are constant.
  const void* const offsets = call.HostValue(call.Index("hashmap_offsets"));
  const int64_t n_levels = call.Size("L");
  if (!call.shapes.ok() || offsets == nullptr) return;
  // Copied: an int32 read must not depend on where the caller's memory lies.
  int32_t values[HASH_ENCODE_MAX_LEVELS + 1];
  std::memcpy(values, offsets, (n_levels + 1) * sizeof(int32_t));
  CheckOffsets(call, values, n_levels);
}

void Tangents(OpBuilder& op) {
  op.Input("tangents: float", "like inputs", "Directions v, float32 [N, D].");
}

void Incoming(OpBuilder& op) {
  op.Input("incoming_gradients: T", "[N, L*F]",
           "Gradient g of a loss with respect to the encoding, or its derivative, [N, L * F].");
}

void Grid(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("log2_per_level_scale: float",
            "Level l has 2^(l * log2_per_level_scale) * resolution_coarsest steps an edge.")
      .Attr("resolution_coarsest: int", "Resolution of level 0, at least 1.", AtLeast(1))
      .Attr(
          "interpolation: {'linear', 'smoothstep'} = 'linear'",
          "'linear', or 'smoothstep': weights w^2 (3 - 2 w), for a continuous gradient of points.")
      .Attr("grid_kind: {'hash', 'dense'} = 'hash'",
            "'hash', or 'dense' for levels that are never hashed.")
      .Input("inputs: float", "[N, D]",
             "Points x, float32 [N, D], D = 2, 3 or 4, meant to lie in [0, 1]. Outside, cells wrap "
             "as uint32. A point with NaN or infinity encodes to NaN. Nothing is ever read out of "
             "bounds.")
      .Input("embeddings: T", "[rows, F]",
             "The table E of all levels, [rows, F], F = 1, 2, 4 or 8. float16 and bfloat16 "
             "accumulate in float32.")
      // Scales of levels are worked out on the host.
      .Input("hashmap_offsets: int32", "[L + 1]",
             "First row of each level and the end of the last, int32 [L + 1], strictly increasing, "
             "L = 1 to 32.",
             Memory::kHost)
      .Sizes("D", "2, 3 or 4",
             [](int64_t n) { return n >= HASH_ENCODE_MIN_DIMS && n <= HASH_ENCODE_MAX_DIMS; })
      .Sizes("F", "1, 2, 4 or 8", [](int64_t n) { return n == 1 || n == 2 || n == 4 || n == 8; })
      .Sizes("L", "1 to 32", [](int64_t n) { return n >= 1 && n <= HASH_ENCODE_MAX_LEVELS; })
      .CheckAttrs(CheckGrowth)
      .Check(CheckGrid);
}

void TableGradient(OpBuilder& op) {
  op.Output("outputs: T", "like embeddings",
            "Gradient with respect to embeddings, [rows, F]; rows outside of the levels are 0.");
}

void PointGradient(OpBuilder& op) {
  op.Output("outputs: float", "like inputs", "Gradient with respect to inputs, float32 [N, D].");
}

DECLARE_OP("HashEncode")
    .Doc(R"doc(
Encodes points with a multiresolution hash table (instant-ngp, Mueller et al. 2022).

Deterministic, as the result does not depend on the number of threads.)doc")
    .With(Grid)
    .Output("outputs: T", "[N, L*F]", "Interpolated features, [N, L * F], level by level.");

DECLARE_OP("HashEncodeGrad")
    .Doc(R"doc(
Gradient of HashEncode with respect to its table, dense.

Deterministic, as each row's sum runs in the order of the points, whatever the number of threads. Only the
shape of embeddings is used.)doc")
    .With(Incoming)
    .With(Grid)
    .With(TableGradient);

DECLARE_OP("HashEncodePointGrad")
    .Doc(R"doc(
Gradient of HashEncode with respect to its points.

Deterministic, as the result does not depend on the number of threads.)doc")
    .With(Incoming)
    .With(Grid)
    .With(PointGradient);

DECLARE_OP("HashEncodeJvp")
    .Doc(R"doc(
Derivative of HashEncode along a direction a point: sum_d tangents[:, d] * d outputs / d inputs[:, d].

Deterministic, as the result does not depend on the number of threads.)doc")
    .With(Tangents)
    .With(Grid)
    .Output("outputs: T", "[N, L*F]", "Directional derivatives, [N, L * F].");

DECLARE_OP("HashEncodeJvpGrad")
    .Doc(R"doc(
Gradient of <incoming_gradients, HashEncodeJvp(tangents, ...)> with respect to the table, dense.

Deterministic, as each row's sum runs in the order of the points, whatever the number of threads. Only the
shape of embeddings is used.)doc")
    .With(Tangents)
    .With(Incoming)
    .With(Grid)
    .With(TableGradient);

DECLARE_OP("HashEncodeJvpPointGrad")
    .Doc(R"doc(
Gradient of <incoming_gradients, HashEncodeJvp(tangents, ...)> with respect to the points.

Deterministic, as the result does not depend on the number of threads.)doc")
    .With(Tangents)
    .With(Incoming)
    .With(Grid)
    .With(PointGradient);

DECLARE_GRADIENT("HashEncode",
                 "inputs = HashEncodePointGrad(d outputs, inputs, embeddings, hashmap_offsets)",
                 "embeddings = HashEncodeGrad(d outputs, inputs, embeddings, hashmap_offsets)");
DECLARE_GRADIENT(
    "HashEncodeGrad", "incoming_gradients = HashEncode(inputs, d outputs, hashmap_offsets)",
    "inputs = HashEncodePointGrad(incoming_gradients, inputs, d outputs, hashmap_offsets)");
DECLARE_GRADIENT(
    "HashEncodePointGrad",
    "incoming_gradients = HashEncodeJvp(d outputs, inputs, embeddings, hashmap_offsets)",
    "inputs = HashEncodeJvpPointGrad(d outputs, incoming_gradients, inputs, embeddings, "
    "hashmap_offsets)",
    "embeddings = HashEncodeJvpGrad(d outputs, incoming_gradients, inputs, embeddings, "
    "hashmap_offsets)");
DECLARE_GRADIENT(
    "HashEncodeJvp",
    "tangents = HashEncodePointGrad(d outputs, inputs, embeddings, hashmap_offsets)",
    "inputs = HashEncodeJvpPointGrad(tangents, d outputs, inputs, embeddings, hashmap_offsets)",
    "embeddings = HashEncodeJvpGrad(tangents, d outputs, inputs, embeddings, hashmap_offsets)");
DECLARE_GRADIENT(
    "HashEncodeJvpGrad",
    "tangents = HashEncodePointGrad(incoming_gradients, inputs, d outputs, hashmap_offsets)",
    "incoming_gradients = HashEncodeJvp(tangents, inputs, d outputs, hashmap_offsets)",
    "inputs = HashEncodeJvpPointGrad(tangents, incoming_gradients, inputs, d outputs, "
    "hashmap_offsets)");

}  // namespace
}  // namespace metal_ops
