// Products of a few rows with quantized weights, by threadgroups.

#include "kernels/msl/instantiate.h"
#include "kernels/quantized_matmul/quantized_groups.metal.h"

#define INSTANTIATE_ROWS(T, S, bits, rows, steps)                                               \
  INSTANTIATE_KERNEL("quantized_groups_" #T "_" #S "_" #bits "_" #rows, quantized_groups, T, S, \
                     bits, rows, QUANTIZED_LINES, steps)
// With one row, registers are left for more codes at a time.
#define INSTANTIATE_BITS(T, S, bits) \
  INSTANTIATE_ROWS(T, S, bits, 1, 4) \
  INSTANTIATE_ROWS(T, S, bits, 2, 2) \
  INSTANTIATE_ROWS(T, S, bits, 4, 2) \
  INSTANTIATE_ROWS(T, S, bits, 8, 2)
#define INSTANTIATE_SCALES(T, S) \
  INSTANTIATE_BITS(T, S, 4)      \
  INSTANTIATE_BITS(T, S, 8)
#define INSTANTIATE(T)         \
  INSTANTIATE_SCALES(T, float) \
  INSTANTIATE_SCALES(T, half)
INSTANTIATE(float)
INSTANTIATE(half)
IF_BFLOAT(INSTANTIATE(bfloat))
