// Softshrink and its gradient: their declarations, for every device.

#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"
#include "kernels/softshrink/softshrink_params.h"

DECLARE_OP("Softshrink")
    .Doc(
        "Shrinks towards zero: x - lambd above lambd, x + lambd below -lambd, 0 between. NaN stays "
        "NaN.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("lambd: float = 0.5", "Half the width of the interval that becomes 0, at least 0.",
          metal_ops::AtLeast(0))
    .Input("features: T", "any", "x, of any shape.")
    .Output("activations: T", "like features", "Has the same shape.")
    .Reuses(0)
    .Elementwise<Softshrink>("softshrink");

DECLARE_OP("SoftshrinkGrad")
    .Doc(
        "The gradient of Softshrink: gradients where |features| > lambd (or features are NaN), "
        "else 0.")
    .Attr("T: {float, half, bfloat16} = DT_FLOAT")
    .Attr("lambd: float = 0.5", "As given to Softshrink.", metal_ops::AtLeast(0))
    .Input("gradients: T", "like features", "Gradient of the loss with respect to the activations.")
    .Input("features: T", "any", "As given to Softshrink.")
    .Output("backprops: T", "like features", "Has the same shape.")
    .Reuses(0)
    .Elementwise<SoftshrinkGrad>("softshrink_grad");

DECLARE_GRADIENT("Softshrink", "features = SoftshrinkGrad(d activations, features)");
DECLARE_GRADIENT("SoftshrinkGrad", "gradients = SoftshrinkGrad(d backprops, features)");
