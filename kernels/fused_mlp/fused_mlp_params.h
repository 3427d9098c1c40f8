// Small fully connected networks: sizes, and where weights and scratch lie, for host code and
// shaders alike.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PARAMS_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

// Each has a derivative that follows from its value.
#define MLP_NONE 0
#define MLP_RELU 1
#define MLP_EXPONENTIAL 2
#define MLP_SIGMOID 3
#define MLP_SQUAREPLUS 4  // (x + sqrt(x^2 + b)) / 2
#define MLP_LEAKY_RELU 5  // slope x below 0
#define MLP_SOFTPLUS 6    // log(1 + exp(beta x)) / beta
#define MLP_TANH 7

#define MLP_MOST_HIDDEN 8
#define MLP_MOST_LAYERS (MLP_MOST_HIDDEN + 1)
#define MLP_MOST_COLUMNS 128  // of inputs, hidden layers, outputs

// The tile of a thread that works alone: rows of the batch, or of a matrix, and columns.
#define MLP_THREAD_ROWS 4
#define MLP_PANEL 16

// Rows of the batch that a simdgroup has, in networks of a width, and for gradients, which take
// more registers; its part of a matrix's gradient.
#define MLP_GROUP_ROWS(width) ((width) <= 64 ? 32 : 16)
#define MLP_BACKWARD_ROWS 16
// Gradients in one piece (fused_mlp_gradient.metal): rows that a threadgroup of that many
// simdgroups has at a time, and the networks it can do. A simdgroup sums 16 rows and up to 32
// columns of each matrix's gradient.
#define MLP_GRADIENT_SIMDGROUPS 8
#define MLP_GRADIENT_ROWS (16 * MLP_GRADIENT_SIMDGROUPS)
#define MLP_GRADIENT_HIDDEN 4
#define MLP_GRADIENT_WIDTH 64
// Simdgroups that sum parts of 32 weights.
#define MLP_SUM_SIMDGROUPS 8
#define MLP_TILE_ROWS 32
#define MLP_TILE_COLUMNS 64

// Numbers of activations.
struct MlpShape {
  float squareplus_b, softplus_beta, negative_slope;
};

struct MlpSizes {
  uint32_t inputs, width, outputs, n_layers, use_bias;
};
inline uint32_t mlp_rows(MlpSizes s, uint32_t layer) { return layer == 0 ? s.inputs : s.width; }
inline uint32_t mlp_columns(MlpSizes s, uint32_t layer) {
  return layer + 1 == s.n_layers ? s.outputs : s.width;
}
// Layer l has a matrix [rows, columns], row after row, and behind it the biases if there are any.
inline uint32_t mlp_matrix(MlpSizes s, uint32_t layer) {
  uint32_t at = 0;
  for (uint32_t l = 0; l < layer; ++l) {
    at += (mlp_rows(s, l) + (s.use_bias != 0 ? 1u : 0u)) * mlp_columns(s, l);
  }
  return at;
}
inline uint32_t mlp_padded(uint32_t columns) {
  return (columns + MLP_PANEL - 1) / MLP_PANEL * MLP_PANEL;
}

// Whether gradients can be computed in one piece, in a type of 2 bytes.
inline bool mlp_gradient_fits(MlpSizes s) {
  return s.width <= MLP_GRADIENT_WIDTH && s.n_layers <= MLP_GRADIENT_HIDDEN + 1 &&
         s.use_bias == 0 && mlp_padded(s.inputs) <= s.width && mlp_padded(s.outputs) <= s.width;
}

// Packed weights: the matrices with rows and columns padded with zeros to whole panels, then their
// transposes, then the biases.
inline uint32_t mlp_packed(MlpSizes s, uint32_t layer) {
  uint32_t at = 0;
  for (uint32_t l = 0; l < layer; ++l) {
    at += mlp_padded(mlp_rows(s, l)) * mlp_padded(mlp_columns(s, l));
  }
  return at;
}
inline uint32_t mlp_packed_transpose(MlpSizes s, uint32_t layer) {
  return mlp_packed(s, s.n_layers) + mlp_packed(s, layer);
}
inline uint32_t mlp_packed_bias(MlpSizes s, uint32_t layer) {
  return 2 * mlp_packed(s, s.n_layers) + layer * MLP_MOST_COLUMNS;
}

struct MlpParams {
  int64_t first;   // the row of the batch with which a chunk begins
  int64_t chunk;   // rows that scratch has room for
  uint32_t rows;   // of this chunk
  uint32_t split;  // rows that are summed to one part of the weights' gradient
  uint32_t n_weights;
  uint32_t x_gradient, adds;
  MlpShape shape;
  MlpSizes sizes;
  uint32_t layer;
  uint32_t first_row;  // of the layer's gradient
};
static_assert(sizeof(MlpParams) == 80, "host and shader must agree");

// Scratch for gradients, each part [chunk, columns]: values of the hidden layers, then gradients of
// all layers' sums, the last one's columns padded.
inline int64_t mlp_values_at(MlpSizes s, int64_t chunk, uint32_t layer) {
  return chunk * s.width * layer;
}
inline int64_t mlp_slopes_at(MlpSizes s, int64_t chunk, uint32_t layer) {
  return chunk * s.width * (s.n_layers - 1 + layer);
}
inline uint32_t mlp_slopes_line(MlpSizes s, uint32_t layer) {
  return mlp_padded(mlp_columns(s, layer));
}

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PARAMS_H_
