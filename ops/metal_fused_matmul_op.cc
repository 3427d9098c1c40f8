// MetalFusedMatMul: products of matrices and what follows them - bias or batch norm, residual,
// activation - in one pass over memory.

#include <string>
#include <vector>

#include "kernels/common/fused_ops.h"
#include "kernels/common/matmul_checks.h"
#include "kernels/common/tf_arg_shapes.h"
#include "kernels/common/tf_float_types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::DataType;
using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

Status FusedMatMulShape(InferenceContext* c) {
  ArgShapes shapes("MetalFusedMatMul");
  DataType type;
  std::vector<DataType> arg_types;
  std::vector<std::string> names;
  bool transpose_a, transpose_b;
  TF_RETURN_IF_ERROR(c->GetAttr("T", &type));
  TF_RETURN_IF_ERROR(c->GetAttr("TArgs", &arg_types));
  TF_RETURN_IF_ERROR(c->GetAttr("fused_ops", &names));
  TF_RETURN_IF_ERROR(c->GetAttr("transpose_a", &transpose_a));
  TF_RETURN_IF_ERROR(c->GetAttr("transpose_b", &transpose_b));
  FusedOps fused;
  ParseFusedOps(&shapes, names, static_cast<int>(arg_types.size()), &fused);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  std::vector<FloatType> types;
  for (const DataType arg_type : arg_types) types.push_back(ToFloatType(arg_type));
  CheckFusedTypes(&shapes, fused, ToFloatType(type), types);

  const std::vector<ArgShape> inputs = InputShapes(c);
  ArgShape product;
  CheckMatMul(&shapes, inputs[0], inputs[1], transpose_a, transpose_b, &product);
  CheckFusedShapes(&shapes, fused, product, product.rank() - 1, {inputs.begin() + 2, inputs.end()});
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  ShapeHandle output = product.known_rank ? ToShape(c, product.dims) : c->UnknownShape();
  if (fused.add) {
    TF_RETURN_IF_ERROR(c->Merge(output, c->input(c->num_inputs() - 1), &output));
  }
  c->set_output(0, output);
  return tensorflow::OkStatus();
}

REGISTER_OP("MetalFusedMatMul")
    .Attr("T: {float, half, bfloat16}")
    .Attr("TArgs: list({float, half, bfloat16}) >= 0")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .Attr("fused_ops: list(string)")
    .Attr("epsilon: float = 0.0001")
    .Attr("leakyrelu_alpha: float = 0.2")
    .Input("a: T")
    .Input("b: T")
    .Input("args: TArgs")
    .Output("product: T")
    .SetShapeFn(FusedMatMulShape)
    .Doc(R"doc(
Products of matrices and what follows them, in one op: sums and what follows in float32, rounded once.

fused_ops is [BiasAdd or BatchNorm], [Add], [activation] in this order, each optional, one at least.

a: [..., m, k], or [..., k, m] if transposed.
b: [..., k, n], or [..., n, k] if transposed. The leading dimensions of a and b are broadcast.
args: What fused_ops takes, in their order. BiasAdd: bias of T. BatchNorm: gamma, beta, mean, variance of float32, or
  scale, shift of T or float32. All of these are [n]. Add: a residual of T, shaped like product.
product: [..., m, n].
transpose_a: Whether a's last two dimensions are exchanged.
transpose_b: Whether b's last two dimensions are exchanged.
fused_ops: BiasAdd, BatchNorm, Add, Relu, Relu6, Elu, LeakyRelu, Sigmoid, Tanh, Swish, GeluExact, GeluApproximate.
epsilon: Added to the variance by BatchNorm.
leakyrelu_alpha: Slope of LeakyRelu below zero.
)doc");

}  // namespace
}  // namespace metal_ops
