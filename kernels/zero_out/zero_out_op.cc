// ZeroOut: TensorFlow's and Apple's hello-world custom op, and the least of an op with kernels
// written out.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

DECLARE_OP("ZeroOut")
    .Doc("Keeps the first element of `to_zero` (in row-major order) and sets all others to zero.")
    .Attr("T: realnumbertype = DT_INT32")
    .Input("to_zero: T", "any", "A tensor of any shape.")
    .Output("zeroed: T", "like to_zero", "A tensor of the same shape and type.");

DECLARE_GRADIENT("ZeroOut", "to_zero = ZeroOut(d zeroed)");
