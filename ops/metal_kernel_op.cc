// MetalKernel: a shader that is text in an attribute, and the same by a handle. metal_ops.metal_kernel
// writes them.

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/metal_kernel/metal_kernel_launch.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"

namespace metal_ops {
namespace {

using absl::Status;
using tensorflow::shape_inference::InferenceContext;

// Shapes are known where the launch is a constant.
Status MetalKernelShapes(InferenceContext* c) {
  std::string function;
  std::vector<std::string> arguments;
  TF_RETURN_IF_ERROR(c->GetAttr("function", &function));
  TF_RETURN_IF_ERROR(c->GetAttr("arguments", &arguments));
  tensorflow::shape_inference::ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &unused));
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
  const tensorflow::Tensor* launch = c->input_tensor(0);
  if (launch == nullptr) return absl::OkStatus();
  MetalKernelLaunch read;
  const std::string wrong =
      read.Read(static_cast<const int64_t*>(launch->data()), launch->NumElements(),
                CountThreadgroupArguments(arguments), c->num_outputs());
  if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat("[", function, "] ", wrong));
  for (int i = 0; i < c->num_outputs(); ++i) {
    std::vector<tensorflow::shape_inference::DimensionHandle> dims;
    for (const int64_t dim : read.shapes[i]) dims.push_back(c->MakeDim(dim));
    c->set_output(i, c->MakeShape(dims));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("MetalKernel")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tparams: list(type) >= 0")
    .Attr("Tout: list(type) >= 1")
    .Attr("source: string")
    .Attr("function: string")
    .Attr("arguments: list(string)")
    .Attr("copied: list(int) = []")
    .Attr("initialized: bool = false")
    .Attr("atomic: bool = false")
    .Attr("fast_math: bool = false")
    .Input("launch: int64")
    .Input("inputs: Tin")
    .Input("params: Tparams")
    .Output("outputs: Tout")
    .SetShapeFn(MetalKernelShapes)
    .Doc(R"doc(
Runs a shader whose text is an attribute. `metal_ops.metal_kernel` and `metal_ops.metal_library` write such calls.

launch: In host memory: threads of the grid (3 numbers), threads of a threadgroup (3; zeros: as many as fit), the bytes of
  each threadgroup argument, then the rank and the sizes of each output.
inputs: What the shader reads, at most 31 arguments in all.
params: In host memory: numbers, or the bytes of structs.
outputs: What the shader writes.
source: MSL, or the bytes of a .metallib.
function: The name of the shader.
arguments: What each of the shader's arguments is: "x=input:0", "z=output:0", "a=param:0", "tile=threadgroup:0", or of input 0,
  inputs being counted before outputs: "x_shape=shape:0" (int each), "x_strides=strides:0" (long each), "x_ndim=ndim:0"
  (int), "x_size=size:0" (uint).
copied: For each output the input that it begins as, or -1; empty: none does.
initialized: The library has a shader `<function>_init_<output>` for each output, which is run before.
atomic: Results may depend on the order of threads: refused where ops have to be deterministic.
fast_math: Lets the compiler reorder and approximate.
)doc");

// Outside of graphs TensorFlow reads, copies and hashes every attribute in every call: with those
// of MetalKernel that takes longer than all else.
REGISTER_OP("MetalKernelByHandle")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tparams: list(type) >= 0")
    .Attr("Tout: list(type) >= 1")
    .Attr("handle: int")
    .Input("launch: int64")
    .Input("inputs: Tin")
    .Input("params: Tparams")
    .Output("outputs: Tout")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
MetalKernel with all else that it says kept by the process, for calls outside of graphs. `metal_ops.metal_kernel` writes them;
programs and saved models have MetalKernel.

launch: As in MetalKernel.
inputs: As in MetalKernel.
params: As in MetalKernel.
outputs: As in MetalKernel.
handle: Which kernel of this process. It is made of the shader's text and all else that MetalKernel has in attributes.
)doc");

}  // namespace metal_ops
