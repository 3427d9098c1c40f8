// The computation of a call of the ops of attention, for the kernels of every device.

#ifndef METAL_OPS_KERNELS_ATTENTION_ATTENTION_PLAN_H_
#define METAL_OPS_KERNELS_ATTENTION_ATTENTION_PLAN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/attention/attention_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

// The steps of an array [batch, heads, queries, keys] that may have sizes of 1.
inline AttentionSteps StepsOf(const ArgShape& shape) {
  const std::vector<int64_t>& dims = shape.dims;
  const auto step = [&](int dim, int64_t size) { return dims[dim] == 1 ? 0 : size; };
  return {step(0, dims[1] * dims[2] * dims[3]), step(1, dims[2] * dims[3]), step(2, dims[3]),
          step(3, 1)};
}

inline AttentionParams PlanAttention(const OpCall& call) {
  AttentionParams p = {};
  const auto size = [&](const char* dim) { return static_cast<uint32_t>(call.Size(dim)); };
  p.batch = size("batch");
  p.heads = size("heads");
  p.kv_heads = size("kv_heads");
  p.queries = size("queries");
  p.keys = size("keys");
  p.size = size("size");
  p.value_size = size("value_size");
  const auto window = [&](const char* attr) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    return static_cast<int32_t>(std::min(call.Int(attr), kMost));
  };
  p.left = window("window_left");
  p.right = window("window_right");
  const float scale = call.Float("scale");
  p.scale = scale != 0 ? scale : 1.0f / std::sqrt(static_cast<float>(std::max(p.size, 1u)));
  p.soft_cap = call.Float("soft_cap");
  const double rate = call.Float("dropout");
  p.dropout = static_cast<uint32_t>(rate * 4294967296.0);
  p.dropout_scale = static_cast<float>(1 / (1 - rate));
  const auto shape = [&](const char* input) { return call.in_shapes[call.Index(input)]; };
  p.use_mask = call.Bool("use_mask") ? 1 : 0;
  if (p.use_mask != 0) p.mask = StepsOf(shape("mask"));
  p.use_bias = call.Bool("use_bias") ? 1 : 0;
  if (p.use_bias != 0) {
    const ArgShape bias = shape("bias");
    p.bias = StepsOf(bias);
    p.bias_batch = static_cast<uint32_t>(bias.dims[0]);
    p.bias_heads = static_cast<uint32_t>(bias.dims[1]);
    p.bias_queries = static_cast<uint32_t>(bias.dims[2]);
    p.bias_keys = static_cast<uint32_t>(bias.dims[3]);
  }
  p.use_lengths = shape("key_lengths").dims[0] > 0 ? 1 : 0;
  return p;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_ATTENTION_ATTENTION_PLAN_H_
