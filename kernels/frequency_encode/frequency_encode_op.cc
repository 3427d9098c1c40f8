// FrequencyEncode and its gradient: sines and cosines of octaves (Mildenhall et al. 2020, equation
// 4).

#include <algorithm>

#include "kernels/frequency_encode/frequency_encode_plan.h"
#include "kernels/runtime/gradient.h"

namespace metal_ops {
namespace {

// Columns of the outputs; -1: not known yet.
int64_t Width(OpCall& call) {
  const int64_t n_dims = call.Size("dims"), columns = FrequencyColumns(call);
  // Without points, a tensor may have any number of dims.
  call.shapes.Require(n_dims <= INT64_MAX / std::max<int64_t>(1, columns),
                      "inputs must have at most 2^63 - 1 columns of outputs, " +
                          std::to_string(columns) + " a dim, got " + std::to_string(n_dims) +
                          " dims.");
  return n_dims < 0 || !call.shapes.ok() ? -1 : n_dims * columns;
}

void SetOutputs(OpCall& call) {
  const int64_t width = Width(call);
  call.out_shapes[0] = ArgShape({call.Size("points"), width});
}

void CheckGradients(OpCall& call) {
  const int64_t width = Width(call);
  call.shapes.Expect("gradients", call.in_shapes[0],
                     {"points", width < 0 ? "width" : std::to_string(width)},
                     "It is shaped like FrequencyEncode's outputs.");
}

DECLARE_OP("FrequencyEncode")
    .Doc(
        "Sines and cosines of octaves of the inputs. Phases are exact to float32 whatever their "
        "size.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_frequencies: int = 10", "Octaves, 0 to 32.",
          Between(0, FREQUENCY_ENCODE_MAX_FREQUENCIES))
    .Attr("include_input: bool = true", "Whether x itself comes first.")
    .Attr("times_pi: bool = true", "Whether the first octave is sin(pi x) or sin(x).")
    .Input("inputs: float", "[points, dims]", "x, [points, dims].")
    .Output("outputs: T", "any",
            "(x, sin w_0 x, cos w_0 x, sin w_1 x, ...), w_k = 2^k pi or 2^k, [points, dims (2 "
            "n_frequencies + 1)].")
    .Check(SetOutputs);

DECLARE_OP("FrequencyEncodeGrad")
    .Doc("The gradient of FrequencyEncode.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("n_frequencies: int = 10", "", Between(0, FREQUENCY_ENCODE_MAX_FREQUENCIES))
    .Attr("include_input: bool = true")
    .Attr("times_pi: bool = true")
    .Input("gradients: T", "any", "Gradient of the loss with respect to FrequencyEncode's outputs.")
    .Input("inputs: float", "[points, dims]", "As given to FrequencyEncode; so the attributes.")
    .Output("inputs_gradient: float", "[points, dims]", "[points, dims].")
    .Check(CheckGradients);

DECLARE_GRADIENT("FrequencyEncode", "inputs = FrequencyEncodeGrad(d outputs, inputs)");

}  // namespace
}  // namespace metal_ops
