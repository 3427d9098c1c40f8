// NullOp, the template that `make new-op NAME=...` copies: y = scale * x. Part 1 of 6: what the op
// is, for every device.
//
// The parts of an op, in the order in which one writes them; 2 to 5 are in kernels/null_op/:
//   1 ops/null_op_op.cc: name, inputs, attributes, shape function, documentation
//   2 null_op_params.h: the structs that host code and shader share
//   3 null_op_cpu.cc: the CPU kernel
//   4 null_op.metal: the shader
//   5 null_op_metal.mm: the Objective-C kernel that encodes the shader
//   6 python/metal_ops/ops/null_op.py: the public function and its gradient
// The test is in tests/metal_kernels/on_device/ and runs on the CPU and on the Metal device.
// All of them are found by name: there is no list to add to.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

// Names are for ever: saved models hold them. New attributes get defaults, so that old models load.
REGISTER_OP("NullOp")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("scale: float = 1.0")
    .Input("x: T")
    .Output("y: T")
    // Report what is wrong with shapes and attributes here if it can be known while a graph is
    // built: TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &shape)), errors::InvalidArgument(...).
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Scales a tensor: y = scale * x.

x: A tensor of any shape.
y: A tensor of the same shape and type. Computed in float32 and rounded once.
scale: The factor.
)doc");
