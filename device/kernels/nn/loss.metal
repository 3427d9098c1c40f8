// Softmax cross entropy, and its gradient by the logits, of labels that are distributions or classes. One
// thread per row.

#include "device/kernels/nn/rows.metal.h"
#include "device/kernels/strided.metal.h"

#if defined(__METAL_CPU__)
#pragma metal_ops wide_vectors
#endif

using namespace metal;

// A row whose elements are neighbours, or one value for all.
template <typename T>
struct LossRow {
  device const T* values;
  uint stride;
  float operator()(uint i) const { return float(values[i * stride]); }
};
// The same of a row whose elements are neighbours, which is known without looking.
template <typename T>
struct DenseRow {
  device const T* values;
  float operator()(uint i) const { return float(values[i]); }
};
template <typename Row>
struct LossExp {
  Row row;
  float largest;
  float operator()(uint i) const { return exp(row(i) - largest); }
};
template <typename Row>
struct LossTerm {
  Row logits, labels;
  float largest, shift;
  float operator()(uint i) const {
    const float label = labels(i);
    return label == 0.0f ? 0.0f : label * (shift - (logits(i) - largest));
  }
};
// Writes the gradient, returns the loss.
template <typename T, typename Row>
inline T row_loss(Row logits, Row labels, float largest, device T* slope, uint columns) {
  const LossExp<Row> exps = {logits, largest};
  const float sum = row_sum(columns, exps), scale = 1.0f / sum;
  const LossTerm<Row> terms = {logits, labels, largest, log(sum)};
  const float loss = row_sum(columns, terms);
  for (uint i = 0; i < columns; ++i) slope[i] = T(exps(i) * scale - labels(i));
  return T(loss);
}

// Strides of rows and columns are 0 along a dimension that is repeated; of columns otherwise 1.
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
  const float largest = row_largest(x, strides.y == 0 ? min(columns, 1u) : columns);
  if (strides.y == 1 && strides.w == 1) {
    const DenseRow<T> dense_x = {x}, dense_y = {y};
    loss[row] = row_loss(dense_x, dense_y, largest, slope, columns);
  } else {
    const LossRow<T> any_x = {x, strides.y}, any_y = {y, strides.w};
    loss[row] = row_loss(any_x, any_y, largest, slope, columns);
  }
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
  const float largest = row_largest(x, columns);
  const RowExp<T> exps = {x, largest};
  const float sum = row_sum(columns, exps), scale = 1.0f / sum;
  for (uint i = 0; i < columns; ++i) slope[i] = T(exps(i) * scale);
  slope[label] = T(exps(uint(label)) * scale - 1.0f);
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
IF_BFLOAT(LOSS(bfloat))
