// MetalFusedConv2D: a convolution and the ops after it - bias or batch norm, residual, activation -
// in one pass over memory.

#include "kernels/fused_conv2d/fused_conv2d_call.h"
#include "kernels/gemm/fused_call.h"

namespace metal_ops {
namespace {

void CheckAttrs(OpCall& call) {
  CheckConvAttrs(&call.shapes, ConvAttrsOf(call));
  CheckFusedAttrs(call);
}

// The output's shape as far as input and filter are known.
ArgShape OutputOf(OpCall& call, const ConvAttrs& attrs) {
  const ArgShape &input = call.in_shapes[0], &filter = call.in_shapes[1];
  if (!input.known_rank && !filter.known_rank) return ArgShape({-1, -1, -1, -1});
  const auto size = [](const ArgShape& shape, int dim) {
    return shape.known_rank ? shape.dims[dim] : -1;
  };
  CheckConvChannels(&call.shapes, attrs, size(input, attrs.dim_c()), size(filter, 2));
  ArgShape output({-1, -1, -1, -1});
  output.dims[attrs.dim_n()] = size(input, attrs.dim_n());
  output.dims[attrs.dim_c()] = size(filter, 3);
  const char* const kNames[] = {"height", "width"};
  const int kDims[] = {attrs.dim_h(), attrs.dim_w()};
  for (int i = 0; i < 2; ++i) {
    const int64_t in = size(input, kDims[i]), extent = size(filter, i);
    int64_t before;
    if (in < 0 || extent < 0) continue;
    ConvDim(&call.shapes, kNames[i], attrs, kDims[i], in, extent, &output.dims[kDims[i]], &before);
  }
  return output;
}

void CheckFusedConv2D(OpCall& call) {
  const ConvAttrs attrs = ConvAttrsOf(call);
  CheckConvRanks(&call.shapes, attrs, call.in_shapes[0], call.in_shapes[1]);
  if (!call.shapes.ok()) return;
  CheckFusedCall(call, OutputOf(call, attrs), attrs.dim_c());
}

DECLARE_OP("MetalFusedConv2D")
    .Doc(R"doc(
A two-dimensional convolution and what follows it, in one op: sums and what follows in float32, rounded once.

fused_ops is [BiasAdd or BatchNorm], [Add], [activation] in this order, each optional, one at least.)doc")
    .With(FusedTypes)
    .Attr("strides: list(int)", "Steps along each of input's dimensions; 1 for batch and channels.")
    .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}", "SAME, VALID or EXPLICIT.")
    .Attr("explicit_paddings: list(int) = []",
          "Before and after, for each of input's dimensions, with padding EXPLICIT.")
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'", "Layout of input, residual and output.")
    .Attr("dilations: list(int) = [1, 1, 1, 1]",
          "Steps between the filter's points along each of input's dimensions; 1 for batch and "
          "channels.")
    .With(FusedAttrs)
    .Input("input: T", "any",
           "[batch, height, width, channels], or [batch, channels, height, width] with NCHW.")
    .Input("filter: T", "any", "[height, width, channels, output channels].")
    .Input("args: TArgs", "any",
           "The arguments of fused_ops, in their order. BiasAdd: bias of T. BatchNorm: gamma, "
           "beta, mean, variance of float32, or scale, shift of T or float32. All of these are "
           "[output channels]. Add: a residual of T, shaped like output.")
    .Output("output: T", "any", "The result, in input's layout.")
    .CheckAttrs(CheckAttrs)
    .Check(CheckFusedConv2D);

}  // namespace
}  // namespace metal_ops
