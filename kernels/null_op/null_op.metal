// NullOp's shader. Part 3 of 4.

#include "kernels/common/elementwise.metal.h"
#include "kernels/null_op/null_op_params.h"

// Of one input; a kernel for each of float, half and bfloat. The name is that of part 1.
ELEMENTWISE_1("null_op", NullOp)
