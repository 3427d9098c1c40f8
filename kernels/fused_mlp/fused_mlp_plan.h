// The computation of a call of FusedMlp, and where its weights lie: for the kernels of every
// device.

#ifndef METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PLAN_H_
#define METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PLAN_H_

#include <cstdint>
#include <string>

#include "kernels/fused_mlp/fused_mlp_params.h"
#include "kernels/runtime/op.h"

namespace metal_ops {

inline uint32_t MlpActivation(const std::string& name) {
  if (name == "relu") return MLP_RELU;
  if (name == "exponential") return MLP_EXPONENTIAL;
  if (name == "sigmoid") return MLP_SIGMOID;
  if (name == "squareplus") return MLP_SQUAREPLUS;
  if (name == "leaky_relu") return MLP_LEAKY_RELU;
  if (name == "softplus") return MLP_SOFTPLUS;
  return name == "tanh" ? MLP_TANH : MLP_NONE;
}

// fused_mlp_params.h says how weights lie.
struct MlpPlan {
  explicit MlpPlan(const OpCall& call)
      : batch(call.Size("batch")),
        inputs(call.Size("inputs")),
        width(call.Int("n_neurons")),
        outputs(call.Int("n_outputs")),
        n_layers(static_cast<int>(call.Int("n_hidden_layers")) + 1),
        use_bias(call.Bool("use_bias")),
        activation(MlpActivation(call.Text("activation"))),
        output_activation(MlpActivation(call.Text("output_activation"))),
        shape{call.Float("squareplus_b"), call.Float("softplus_beta"),
              call.Float("negative_slope")} {}

  MlpSizes sizes() const {
    return {static_cast<uint32_t>(inputs), static_cast<uint32_t>(width),
            static_cast<uint32_t>(outputs), static_cast<uint32_t>(n_layers), use_bias ? 1u : 0u};
  }
  int64_t rows(int l) const { return mlp_rows(sizes(), l); }
  int64_t columns(int l) const { return mlp_columns(sizes(), l); }
  int64_t matrix(int l) const { return mlp_matrix(sizes(), l); }
  int64_t bias(int l) const { return matrix(l) + rows(l) * columns(l); }
  int64_t n_weights() const { return matrix(n_layers); }
  uint32_t activation_of(int l) const { return l == n_layers - 1 ? output_activation : activation; }

  int64_t batch, inputs, width, outputs;
  int n_layers;
  bool use_bias;
  uint32_t activation, output_activation;
  MlpShape shape;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_FUSED_MLP_FUSED_MLP_PLAN_H_
