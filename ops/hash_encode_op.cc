// HashEncode and its five derivative ops: the multiresolution hash table of instant-ngp (Mueller et
// al. 2022).
//
//   op                       is                                          called by the gradient of
//   HashEncode               y = enc(x, E)                               -
//   HashEncodeGrad           dE of <g, y>                                HashEncode wrt embeddings
//   HashEncodePointGrad      dx of <g, y>                                HashEncode wrt inputs
//   HashEncodeJvp            J v = sum_d v_d dy/dx_d                     HashEncodePointGrad wrt g
//   HashEncodeJvpGrad        dE of <g, J v>                              HashEncodePointGrad wrt
//   embeddings HashEncodeJvpPointGrad   dx of <g, J v> HashEncodePointGrad wrt inputs

#include <string>
#include <utility>
#include <vector>

#include "kernels/hash_encode/hash_encode_checks.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;
using In = HashEncodeInput;

PartialShape ToPartialShape(InferenceContext* c, ShapeHandle shape) {
  PartialShape partial;
  if (!c->RankKnown(shape)) return partial;
  partial.known_rank = true;
  for (int i = 0; i < c->Rank(shape); ++i) partial.dims.push_back(c->Value(c->Dim(shape, i)));
  return partial;
}

// What an op's one output is shaped like.
enum class Out { kEncoding, kTable, kPoints };

tensorflow::OpShapeInferenceFn ShapeFn(const char* op, std::vector<In> inputs, Out out) {
  const HashEncodeOpSpec spec{op, std::move(inputs)};
  return [spec, out](InferenceContext* c) -> Status {
    HashEncodeAttrs attrs;
    TF_RETURN_IF_ERROR(c->GetAttr("log2_per_level_scale", &attrs.log2_per_level_scale));
    TF_RETURN_IF_ERROR(c->GetAttr("resolution_coarsest", &attrs.resolution_coarsest));
    std::string error = CheckHashEncodeAttrs(spec.name, attrs);
    if (!error.empty()) return tensorflow::errors::InvalidArgument(error);

    std::vector<PartialShape> shapes;
    for (int i = 0; i < c->num_inputs(); ++i) shapes.push_back(ToPartialShape(c, c->input(i)));
    HashEncodeSizes sizes;
    error = CheckHashEncodeShapes(spec, shapes, &sizes);
    if (!error.empty()) return tensorflow::errors::InvalidArgument(error);

    // A constant hashmap_offsets is checked while the graph is built.
    if (const tensorflow::Tensor* offsets = c->input_tensor(c->num_inputs() - 1)) {
      error = CheckHashEncodeOffsets(spec.name, attrs, offsets->flat<int32_t>().data(),
                                     offsets->NumElements() - 1, sizes.n_rows);
      if (!error.empty()) return tensorflow::errors::InvalidArgument(error);
    }

    const auto dim = [c](int64_t value) { return value < 0 ? c->UnknownDim() : c->MakeDim(value); };
    switch (out) {
      case Out::kEncoding:
        c->set_output(0,
                      c->Matrix(dim(sizes.n_points), dim(sizes.n_levels < 0 || sizes.n_features < 0
                                                             ? -1
                                                             : sizes.n_levels * sizes.n_features)));
        break;
      case Out::kTable:
        c->set_output(0, c->Matrix(dim(sizes.n_rows), dim(sizes.n_features)));
        break;
      case Out::kPoints:
        c->set_output(0, c->Matrix(dim(sizes.n_points), dim(sizes.n_dims)));
        break;
    }
    return tensorflow::OkStatus();
  };
}

#define HASH_ENCODE_ATTRS                                         \
  Attr("T: {float, half, bfloat16} = DT_FLOAT")                   \
      .Attr("log2_per_level_scale: float")                        \
      .Attr("resolution_coarsest: int")                           \
      .Attr("interpolation: {'linear', 'smoothstep'} = 'linear'") \
      .Attr("grid_kind: {'hash', 'dense'} = 'hash'")

// What the six descriptions share, as users read them one at a time.
constexpr char kDocInputs[] = R"doc(
inputs: Points x, float32 [N, D], D = 2, 3 or 4, meant to lie in [0, 1]. Outside, cells wrap as
  uint32. A point with NaN or infinity encodes to NaN. Nothing is ever read out of bounds.
embeddings: The table E of all levels, [rows, F], F = 1, 2, 4 or 8. float16 and bfloat16 accumulate
  in float32.
hashmap_offsets: First row of each level and the end of the last, int32 [L + 1], strictly
  increasing, L = 1 to 32.
log2_per_level_scale: Level l has 2^(l * log2_per_level_scale) * resolution_coarsest steps an edge.
resolution_coarsest: Resolution of level 0, at least 1.
interpolation: 'linear', or 'smoothstep': weights w^2 (3 - 2 w), for a continuous gradient of points.
grid_kind: 'hash', or 'dense' for levels that are never hashed.
)doc";

std::string Doc(const std::string& summary, const std::string& outputs) {
  return summary + kDocInputs + outputs;
}

REGISTER_OP("HashEncode")
    .HASH_ENCODE_ATTRS.Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: T")
    .SetShapeFn(ShapeFn("HashEncode", {In::kPoints, In::kTable, In::kOffsets}, Out::kEncoding))
    .Doc(Doc(R"doc(
Encodes points with a multiresolution hash table (instant-ngp, Mueller et al. 2022).

Deterministic, as the result does not depend on the number of threads.
)doc",
             R"doc(outputs: Interpolated features, [N, L * F], level by level.
)doc"));

REGISTER_OP("HashEncodeGrad")
    .HASH_ENCODE_ATTRS.Input("incoming_gradients: T")
    .Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: T")
    .SetShapeFn(ShapeFn("HashEncodeGrad", {In::kIncoming, In::kPoints, In::kTable, In::kOffsets},
                        Out::kTable))
    .Doc(Doc(
        R"doc(
Gradient of HashEncode with respect to its table, dense.

Deterministic, as each row's sum runs in the order of the points, whatever the number of threads. Only the
shape of embeddings is used.

incoming_gradients: Gradient g of a loss with respect to HashEncode's outputs, [N, L * F].
)doc",
        R"doc(outputs: Gradient with respect to embeddings, [rows, F]; rows outside of the levels are 0.
)doc"));

REGISTER_OP("HashEncodePointGrad")
    .HASH_ENCODE_ATTRS.Input("incoming_gradients: T")
    .Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: float")
    .SetShapeFn(ShapeFn("HashEncodePointGrad",
                        {In::kIncoming, In::kPoints, In::kTable, In::kOffsets}, Out::kPoints))
    .Doc(Doc(R"doc(
Gradient of HashEncode with respect to its points.

Deterministic, as the result does not depend on the number of threads.

incoming_gradients: Gradient g of a loss with respect to HashEncode's outputs, [N, L * F].
)doc",
             R"doc(outputs: Gradient with respect to inputs, float32 [N, D].
)doc"));

REGISTER_OP("HashEncodeJvp")
    .HASH_ENCODE_ATTRS.Input("tangents: float")
    .Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: T")
    .SetShapeFn(ShapeFn("HashEncodeJvp", {In::kTangents, In::kPoints, In::kTable, In::kOffsets},
                        Out::kEncoding))
    .Doc(Doc(R"doc(
Derivative of HashEncode along a direction a point: sum_d tangents[:, d] * d outputs / d inputs[:, d].

Deterministic, as the result does not depend on the number of threads.

tangents: Directions v, float32 [N, D].
)doc",
             R"doc(outputs: Directional derivatives, [N, L * F].
)doc"));

REGISTER_OP("HashEncodeJvpGrad")
    .HASH_ENCODE_ATTRS.Input("tangents: float")
    .Input("incoming_gradients: T")
    .Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: T")
    .SetShapeFn(ShapeFn("HashEncodeJvpGrad",
                        {In::kTangents, In::kIncoming, In::kPoints, In::kTable, In::kOffsets},
                        Out::kTable))
    .Doc(Doc(
        R"doc(
Gradient of <incoming_gradients, HashEncodeJvp(tangents, ...)> with respect to the table, dense.

Deterministic, as each row's sum runs in the order of the points, whatever the number of threads. Only the
shape of embeddings is used.

tangents: Directions v, float32 [N, D].
incoming_gradients: Gradient g of a loss with respect to HashEncodeJvp's outputs, [N, L * F].
)doc",
        R"doc(outputs: Gradient with respect to embeddings, [rows, F]; rows outside of the levels are 0.
)doc"));

REGISTER_OP("HashEncodeJvpPointGrad")
    .HASH_ENCODE_ATTRS.Input("tangents: float")
    .Input("incoming_gradients: T")
    .Input("inputs: float")
    .Input("embeddings: T")
    .Input("hashmap_offsets: int32")
    .Output("outputs: float")
    .SetShapeFn(ShapeFn("HashEncodeJvpPointGrad",
                        {In::kTangents, In::kIncoming, In::kPoints, In::kTable, In::kOffsets},
                        Out::kPoints))
    .Doc(Doc(R"doc(
Gradient of <incoming_gradients, HashEncodeJvp(tangents, ...)> with respect to the points.

Deterministic, as the result does not depend on the number of threads.

tangents: Directions v, float32 [N, D].
incoming_gradients: Gradient g of a loss with respect to HashEncodeJvp's outputs, [N, L * F].
)doc",
             R"doc(outputs: Gradient with respect to inputs, float32 [N, D].
)doc"));

}  // namespace
}  // namespace metal_ops
