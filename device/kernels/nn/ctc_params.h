// Arguments of the shaders of ctc.metal.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CTC_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CTC_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CTC_THREADS 32  // that share a sequence

// Times, sequences and classes of the logits; `states` is the most that a sequence has: its labels, and
// a blank before, between and after them.
struct CtcParams {
  uint32_t times, batch, classes, states;
  uint32_t blank;
  uint32_t merge;  // a label that repeats is one
};

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CTC_PARAMS_H_
