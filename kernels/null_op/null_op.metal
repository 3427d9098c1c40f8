// NullOp's shader. Part 3 of 4.

#include "kernels/null_op/null_op_params.h"
#include "kernels/runtime/elementwise.metal.h"

// The kernel of one input, for each of float, half and bfloat. The name is that of part 1.
ELEMENTWISE_1("null_op", NullOp)
