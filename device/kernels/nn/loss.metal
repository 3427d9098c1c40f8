// Softmax cross entropy, and its gradient by the logits, of labels that are distributions or classes. One
// thread a row.

#include "device/kernels/strided.metal.h"

using namespace metal;

// Strides are 0 along a dimension that is repeated.
template <typename T>
kernel void softmax_cross_entropy(device const T* logits [[buffer(0)]],
                                  device const T* labels [[buffer(1)]],
                                  device T* loss [[buffer(2)]], device T* d_logits [[buffer(3)]],
                                  constant uint& columns [[buffer(4)]],
                                  constant uint4& strides [[buffer(5)]],
                                  uint row [[thread_position_in_grid]]) {
  device const T* const x = logits + ulong(row) * strides.x;
  device const T* const y = labels + ulong(row) * strides.z;
  device T* const slope = d_logits + ulong(row) * columns;
  float largest = -INFINITY;
  for (uint i = 0; i < columns; ++i) largest = max(largest, float(x[ulong(i) * strides.y]));
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) sum += exp(float(x[ulong(i) * strides.y]) - largest);
  const float shift = log(sum), scale = 1.0f / sum;
  float total = 0.0f;
  for (uint i = 0; i < columns; ++i) {
    const float logit = float(x[ulong(i) * strides.y]) - largest;
    const float label = float(y[ulong(i) * strides.w]);
    total += label == 0.0f ? 0.0f : label * (shift - logit);
    slope[i] = T(exp(logit) * scale - label);
  }
  loss[row] = T(total);
}

// A label that is no class gives NaN, as on TensorFlow's other GPUs.
template <typename T, typename Label>
kernel void sparse_softmax_cross_entropy(device const T* logits [[buffer(0)]],
                                         device const Label* labels [[buffer(1)]],
                                         device T* loss [[buffer(2)]],
                                         device T* d_logits [[buffer(3)]],
                                         constant uint& columns [[buffer(4)]],
                                         uint row [[thread_position_in_grid]]) {
  device const T* const x = logits + ulong(row) * columns;
  device T* const slope = d_logits + ulong(row) * columns;
  const long label = long(labels[row]);
  if (label < 0 || label >= long(columns)) {
    for (uint i = 0; i < columns; ++i) slope[i] = T(NAN);
    loss[row] = T(NAN);
    return;
  }
  float largest = -INFINITY;
  for (uint i = 0; i < columns; ++i) largest = max(largest, float(x[i]));
  float sum = 0.0f;
  for (uint i = 0; i < columns; ++i) sum += exp(float(x[i]) - largest);
  const float scale = 1.0f / sum;
  for (uint i = 0; i < columns; ++i) {
    slope[i] = T(exp(float(x[i]) - largest) * scale - (long(i) == label ? 1.0f : 0.0f));
  }
  loss[row] = T(log(sum) - (float(x[label]) - largest));
}

#define LOSS(type)                                                                                \
  INSTANTIATE_KERNEL("softmax_cross_entropy_" #type, softmax_cross_entropy, type)                 \
  INSTANTIATE_KERNEL("sparse_softmax_cross_entropy_" #type "_int", sparse_softmax_cross_entropy,  \
                     type, int)                                                                   \
  INSTANTIATE_KERNEL("sparse_softmax_cross_entropy_" #type "_long", sparse_softmax_cross_entropy, \
                     type, long)
LOSS(float)
LOSS(half)
LOSS(bfloat)
