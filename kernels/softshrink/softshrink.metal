// The shaders of Softshrink and SoftshrinkGrad.

#include "kernels/runtime/elementwise.metal.h"
#include "kernels/softshrink/softshrink_params.h"

ELEMENTWISE_1("softshrink", Softshrink)
ELEMENTWISE_2("softshrink_grad", SoftshrinkGrad)
