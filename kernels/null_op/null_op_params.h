// NullOp's formula, read by host code and shader alike. Part 2 of 4.

#ifndef METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_
#define METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_

// The op's float attributes, in their order; then the value of one element, from those of the
// inputs. Half and bfloat16 come as float.
struct NullOp {
  float scale;

  float operator()(float x) const { return scale * x; }
};

#endif  // METAL_OPS_KERNELS_NULL_OP_NULL_OP_PARAMS_H_
