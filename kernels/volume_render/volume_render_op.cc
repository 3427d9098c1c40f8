// VolumeRender, RenderWeights and their gradients: emission-absorption rendering along rays.

#include "kernels/rays/packed_samples.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckEarlyStop(OpCall& call) {
  const float eps = call.Float("early_stop_eps");
  call.shapes.Require(eps >= 0 && eps < 1,
                      "early_stop_eps must be a transmittance in [0, 1), got " + ToText(eps) +
                          ". 0 stops nowhere.");
}

// Empty stands for "there is none".
void ExpectOrEmpty(OpCall& call, int input, const std::vector<std::string>& dims) {
  for (const int64_t dim : call.in_shapes[input].dims) {
    if (dim == 0) return;
  }
  call.shapes.Expect(call.op.inputs[input].name.c_str(), call.in_shapes[input], dims);
}

// sigmas, t_starts, t_ends and packed_info, wherever they stand; the names of a sample array's
// dimensions.
std::vector<std::string> CheckSamples(OpCall& call) {
  const std::vector<ArgShape>& in = call.in_shapes;
  const std::vector<std::string> samples = ExpectSamples(
      &call.shapes, "sigmas", in[call.Index("sigmas")], in[call.Index("packed_info")]);
  if (samples.empty()) return samples;
  for (const char* t : {"t_starts", "t_ends"}) call.shapes.Expect(t, in[call.Index(t)], samples);
  return samples;
}

void CheckVolumeRender(OpCall& call) {
  const std::vector<std::string> samples = CheckSamples(call);
  if (samples.empty()) return;
  std::vector<std::string> colours = samples;
  colours.push_back("channels");
  call.shapes.Expect("rgbs", call.in_shapes[call.Index("rgbs")], colours);
  const int behind = call.Index("background");
  const ArgShape& background = call.in_shapes[behind];
  if (background.rank() == 2) {
    call.shapes.Expect("background", background, {"rays", "channels"});
  } else if (background.rank() >= 0) {
    ExpectOrEmpty(call, behind, {"channels"});
  }
  if (behind == 5) return;
  ExpectOrEmpty(call, 0, {"rays", "channels"});
  for (int i = 1; i < 4; ++i) ExpectOrEmpty(call, i, {"rays"});
  ExpectOrEmpty(call, 4, samples);
}

void CheckRenderWeights(OpCall& call) {
  const std::vector<std::string> samples = CheckSamples(call);
  if (samples.empty()) return;
  for (int i = 0; i < call.Index("sigmas"); ++i) ExpectOrEmpty(call, i, samples);
}

void RenderAttrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("Tindices: {int32, int64} = DT_INT32")
      .Attr("early_stop_eps: float = 0.0",
            "Samples with less transmittance before them than this weigh nothing. 0: none.")
      .Attr("t_gradients: bool = false",
            "Whether the gradient op makes the gradients of t_starts and t_ends.")
      .CheckAttrs(CheckEarlyStop);
}

void Sigmas(OpBuilder& op) {
  op.Input("sigmas: T", "any",
           "Densities per unit of t, [samples] packed ray after ray, or [rays, samples].");
}

void Times(OpBuilder& op) {
  op.Input("t_starts: float", "any", "Where each sample begins along its ray, the same shape.")
      .Input("t_ends: float", "any", "Where it ends.")
      .Input("packed_info: Tindices", "any",
             "First sample and number of samples of each ray, [rays, 2], in order and without "
             "overlap; [0, 2] if the samples are dense. Samples of no ray weigh 0.",
             Memory::kHost);
}

void Scene(OpBuilder& op) {
  op.With(Sigmas)
      .Input("rgbs: T", "any", "Colours, [samples, channels] or [rays, samples, channels].")
      .With(Times)
      .Input("background: float", "any",
             "The colour behind the samples: [channels], [rays, channels], or [0] for black.")
      .Check(CheckVolumeRender);
}

DECLARE_OP("VolumeRender")
    .Doc(R"doc(
Composites the samples of each ray: w_i = exp(-sum_{j<i} x_j) (1 - exp(-x_i)), x_i = sigma_i (t_end_i - t_start_i).

Computed in float32 whatever T. Deterministic.)doc")
    .With(RenderAttrs)
    .With(Scene)
    .Output("rgb: float", "[rays, channels]",
            "sum w_i rgb_i + (1 - opacity) background, [rays, channels].")
    .Output("opacity: float", "[rays]", "sum w_i, [rays].")
    .Output("depth: float", "[rays]",
            "sum w_i (t_start_i + t_end_i) / 2, [rays]. Divide by the opacity for the expected "
            "depth.")
    .Output("depth_median: float", "[rays]",
            "Middle of the first sample up to whose end the opacity is 1/2 or more; of the last "
            "one where it stays below; 0 without samples.")
    .Output("weights: float", "like sigmas", "w_i, shaped like sigmas.");

DECLARE_OP("VolumeRenderGrad")
    .Doc(
        "The gradient of VolumeRender. An empty incoming gradient stands for zeros. "
        "Deterministic.")
    .With(RenderAttrs)
    .Input("rgb_gradient: float", "any",
           "Gradient of the loss with respect to VolumeRender's output of that name; so the next "
           "four.")
    .Input("opacity_gradient: float", "any")
    .Input("depth_gradient: float", "any")
    .Input("depth_median_gradient: float", "any")
    .Input("weights_gradient: float", "any")
    .With(Scene)
    .Output("sigmas_gradient: T", "like sigmas",
            "Shaped like the input; so the next four. The last two are empty without t_gradients.")
    .Output("rgbs_gradient: T", "like rgbs")
    .Output("background_gradient: float", "like background")
    .Output("t_starts_gradient: float", "like t_starts if t_gradients")
    .Output("t_ends_gradient: float", "like t_ends if t_gradients")
    .NotDifferentiable();

DECLARE_OP("RenderWeights")
    .Doc("Weights of VolumeRender alone, and the transmittance up to each sample.")
    .With(RenderAttrs)
    .With(Sigmas)
    .With(Times)
    .Output("weights: float", "like sigmas",
            "w_i = T_i (1 - exp(-x_i)), shaped like sigmas; 0 where T_i < early_stop_eps.")
    .Output("transmittance: float", "like sigmas",
            "T_i = exp(-sum_{j<i} x_j), behind an early stop too.")
    .Check(CheckRenderWeights);

DECLARE_OP("RenderWeightsGrad")
    .Doc("The gradient of RenderWeights. An empty incoming gradient stands for zeros.")
    .With(RenderAttrs)
    .Input("weights_gradient: float", "any",
           "Gradient of the loss with respect to the weights, shaped like sigmas.")
    .Input("transmittance_gradient: float", "any", "The same for the transmittance.")
    .With(Sigmas)
    .With(Times)
    .Output("sigmas_gradient: T", "like sigmas",
            "Shaped like the input; so the next two, which are empty without t_gradients.")
    .Output("t_starts_gradient: float", "like t_starts if t_gradients")
    .Output("t_ends_gradient: float", "like t_ends if t_gradients")
    .Check(CheckRenderWeights)
    .NotDifferentiable();

DECLARE_GRADIENT("VolumeRender",
                 "sigmas, rgbs, background, t_starts, t_ends = VolumeRenderGrad(d? rgb, d? "
                 "opacity, d? depth, d? depth_median, d? weights, sigmas, rgbs, t_starts, t_ends, "
                 "packed_info, background) if t_gradients",
                 "sigmas, rgbs, background, _, _ = VolumeRenderGrad(d? rgb, d? opacity, d? depth, "
                 "d? depth_median, d? weights, sigmas, rgbs, t_starts, t_ends, packed_info, "
                 "background) if !t_gradients");
DECLARE_GRADIENT("RenderWeights",
                 "sigmas, t_starts, t_ends = RenderWeightsGrad(d? weights, d? transmittance, "
                 "sigmas, t_starts, t_ends, packed_info) if t_gradients",
                 "sigmas, _, _ = RenderWeightsGrad(d? weights, d? transmittance, sigmas, t_starts, "
                 "t_ends, packed_info) if !t_gradients");

}  // namespace
}  // namespace metal_ops
