// NullOp, the template that `make new-op NAME=...` copies: y = scale * x. Part 1 of 4: the
// declaration of the op, for every device.
//
// The parts of an op, in the order in which one writes them:
//   1 this file: inputs, attributes, outputs, documentation
//   2 null_op_params.h: the formula, compiled for the host and for the device
//   3 null_op.metal: the shader
//   4 python/metal_ops/ops/null_op.py: the function and its gradient
// The test is in tests/metal_kernels/on_device/ and runs on the CPU and on the Metal device.
// All of them are found by name: there is no list to add to.
//
// An op that is more than a formula of its elements leaves Elementwise() out, and has two files
// with kernels instead, null_op_cpu.cc and null_op_metal.mm: kernels/zero_out is the least of that.

#include "kernels/null_op/null_op_params.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

// Names are for ever: saved models hold them. New attributes get defaults, so that old models load.
// This declaration checks types, shapes and ranges, in graphs and on every device.
DECLARE_OP("NullOp")
    .Doc("Scales a tensor: y = scale * x.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("scale: float = 1.0", "The factor.")
    .Input("x: T", "any", "A tensor of any shape.")
    .Output("y: T", "like x",
            "A tensor of the same shape and type. Computed in float32 and rounded once.")
    // The input's memory becomes the output's where nothing else needs it.
    .Reuses(0)
    .Elementwise<NullOp>("null_op");

DECLARE_GRADIENT("NullOp", "x = NullOp(d y)");
