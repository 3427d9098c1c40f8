// ZeroOut: TensorFlow's and Apple's hello-world custom op. Keeps the first element, zeroes the
// rest.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("ZeroOut")
    .Attr("T: realnumbertype = DT_INT32")
    .Input("to_zero: T")
    .Output("zeroed: T")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Keeps the first element of `to_zero` (in row-major order) and sets all others to zero.

to_zero: A tensor of any shape.
zeroed: A tensor of the same shape and type.
)doc");
