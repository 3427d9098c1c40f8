// VolumeRender, RenderWeights and their gradients: emission-absorption rendering along rays.

#include <string>
#include <vector>

#include "kernels/common/tf_arg_shapes.h"
#include "kernels/volume_render/volume_render_checks.h"
#include "tensorflow/core/framework/op.h"

namespace metal_ops {
namespace {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;

Status CheckAttrs(InferenceContext* c, ArgShapes* shapes) {
  float early_stop_eps;
  TF_RETURN_IF_ERROR(c->GetAttr("early_stop_eps", &early_stop_eps));
  CheckEarlyStop(shapes, early_stop_eps);
  return ToStatus(*shapes);
}

Status VolumeRenderShape(InferenceContext* c) {
  ArgShapes shapes("VolumeRender");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  CheckVolumeRender(&shapes, InputShapes(c), 0);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  const int64_t n_rays = shapes.Size("rays");
  c->set_output(0, ToShape(c, {n_rays, shapes.Size("channels")}));
  for (int i = 1; i < 4; ++i) c->set_output(i, ToShape(c, {n_rays}));
  c->set_output(4, c->input(0));
  return tensorflow::OkStatus();
}

Status VolumeRenderGradShape(InferenceContext* c) {
  ArgShapes shapes("VolumeRenderGrad");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  const std::vector<ArgShape> inputs = InputShapes(c);
  CheckVolumeRender(&shapes, inputs, 5);
  CheckVolumeRenderGradients(&shapes, inputs);
  TF_RETURN_IF_ERROR(ToStatus(shapes));
  bool t_gradients;
  TF_RETURN_IF_ERROR(c->GetAttr("t_gradients", &t_gradients));
  c->set_output(0, c->input(5));
  c->set_output(1, c->input(6));
  c->set_output(2, c->input(10));
  c->set_output(3, t_gradients ? c->input(7) : c->Vector(0));
  c->set_output(4, t_gradients ? c->input(8) : c->Vector(0));
  return tensorflow::OkStatus();
}

Status RenderWeightsShape(InferenceContext* c) {
  ArgShapes shapes("RenderWeights");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  CheckRenderWeights(&shapes, InputShapes(c), 0);
  c->set_output(0, c->input(0));
  c->set_output(1, c->input(0));
  return ToStatus(shapes);
}

Status RenderWeightsGradShape(InferenceContext* c) {
  ArgShapes shapes("RenderWeightsGrad");
  TF_RETURN_IF_ERROR(CheckAttrs(c, &shapes));
  CheckRenderWeights(&shapes, InputShapes(c), 2);
  bool t_gradients;
  TF_RETURN_IF_ERROR(c->GetAttr("t_gradients", &t_gradients));
  c->set_output(0, c->input(2));
  c->set_output(1, t_gradients ? c->input(3) : c->Vector(0));
  c->set_output(2, t_gradients ? c->input(4) : c->Vector(0));
  return ToStatus(shapes);
}

// Shared by the descriptions, as users read them one at a time.
const char kSamplesDoc[] = R"doc(
sigmas: Densities per unit of t, [samples] packed ray after ray, or [rays, samples].
t_starts: Where each sample begins along its ray, the same shape.
t_ends: Where it ends.
packed_info: First sample and number of samples of each ray, [rays, 2], in order and without overlap; [0, 2] if the samples
  are dense. Samples of no ray weigh 0.
early_stop_eps: Samples with less transmittance before them than this weigh nothing. 0: none.
t_gradients: Whether the gradient op makes the gradients of t_starts and t_ends.
)doc";

REGISTER_OP("VolumeRender")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("early_stop_eps: float = 0.0")
    .Attr("t_gradients: bool = false")
    .Input("sigmas: T")
    .Input("rgbs: T")
    .Input("t_starts: float")
    .Input("t_ends: float")
    .Input("packed_info: Tindices")
    .Input("background: float")
    .Output("rgb: float")
    .Output("opacity: float")
    .Output("depth: float")
    .Output("depth_median: float")
    .Output("weights: float")
    .SetShapeFn(VolumeRenderShape)
    .Doc(std::string(R"doc(
Composites the samples of each ray: w_i = exp(-sum_{j<i} x_j) (1 - exp(-x_i)), x_i = sigma_i (t_end_i - t_start_i).

Computed in float32 whatever T. Deterministic.

rgbs: Colours, [samples, channels] or [rays, samples, channels].
background: What is behind the samples: [channels], [rays, channels], or [0] for black.
rgb: sum w_i rgb_i + (1 - opacity) background, [rays, channels].
opacity: sum w_i, [rays].
depth: sum w_i (t_start_i + t_end_i) / 2, [rays]. Divide by the opacity for the expected depth.
depth_median: Middle of the first sample up to whose end the opacity is 1/2 or more; of the last one where it stays below;
  0 without samples.
weights: w_i, shaped like sigmas.
)doc") + kSamplesDoc);

REGISTER_OP("VolumeRenderGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("early_stop_eps: float = 0.0")
    .Attr("t_gradients: bool = false")
    .Input("rgb_gradient: float")
    .Input("opacity_gradient: float")
    .Input("depth_gradient: float")
    .Input("depth_median_gradient: float")
    .Input("weights_gradient: float")
    .Input("sigmas: T")
    .Input("rgbs: T")
    .Input("t_starts: float")
    .Input("t_ends: float")
    .Input("packed_info: Tindices")
    .Input("background: float")
    .Output("sigmas_gradient: T")
    .Output("rgbs_gradient: T")
    .Output("background_gradient: float")
    .Output("t_starts_gradient: float")
    .Output("t_ends_gradient: float")
    .SetShapeFn(VolumeRenderGradShape)
    .Doc(std::string(R"doc(
The gradient of VolumeRender. An empty incoming gradient stands for zeros. Deterministic.

rgb_gradient: Gradient of the loss with respect to VolumeRender's output of that name; so the next four.
rgbs: Colours, [samples, channels] or [rays, samples, channels].
background: As given to VolumeRender.
sigmas_gradient: Shaped like the input; so the next four. The last two are empty without t_gradients.
)doc") + kSamplesDoc);

REGISTER_OP("RenderWeights")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("early_stop_eps: float = 0.0")
    .Attr("t_gradients: bool = false")
    .Input("sigmas: T")
    .Input("t_starts: float")
    .Input("t_ends: float")
    .Input("packed_info: Tindices")
    .Output("weights: float")
    .Output("transmittance: float")
    .SetShapeFn(RenderWeightsShape)
    .Doc(std::string(R"doc(
Weights of VolumeRender alone, and the transmittance up to each sample.

weights: w_i = T_i (1 - exp(-x_i)), shaped like sigmas; 0 where T_i < early_stop_eps.
transmittance: T_i = exp(-sum_{j<i} x_j), behind an early stop too.
)doc") + kSamplesDoc);

REGISTER_OP("RenderWeightsGrad")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("Tindices: {int32, int64} = DT_INT32")
    .Attr("early_stop_eps: float = 0.0")
    .Attr("t_gradients: bool = false")
    .Input("weights_gradient: float")
    .Input("transmittance_gradient: float")
    .Input("sigmas: T")
    .Input("t_starts: float")
    .Input("t_ends: float")
    .Input("packed_info: Tindices")
    .Output("sigmas_gradient: T")
    .Output("t_starts_gradient: float")
    .Output("t_ends_gradient: float")
    .SetShapeFn(RenderWeightsGradShape)
    .Doc(std::string(R"doc(
The gradient of RenderWeights. An empty incoming gradient stands for zeros.

weights_gradient: Gradient of the loss with respect to the weights, shaped like sigmas.
transmittance_gradient: The same for the transmittance.
sigmas_gradient: Shaped like the input; so the next two, which are empty without t_gradients.
)doc") + kSamplesDoc);

}  // namespace
}  // namespace metal_ops
