// fused_ops and args of MetalFusedConv2D and MetalFusedMatMul: the sequences that exist, and the
// args that each takes. For shape functions and for the kernels of every device.

#ifndef METAL_OPS_KERNELS_GEMM_FUSED_OPS_H_
#define METAL_OPS_KERNELS_GEMM_FUSED_OPS_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/gemm/epilogue_params.h"
#include "kernels/runtime/arg_shapes.h"
#include "kernels/simd/float_types.h"

namespace metal_ops {

struct FusedOps {
  uint32_t channels = EPILOGUE_NO_CHANNELS;
  bool add = false;
  uint32_t activation = EPILOGUE_NO_ACTIVATION;

  int n_channel_args() const {
    constexpr int kArgs[] = {0, 1, 2, 4};
    return kArgs[channels];
  }
  // Args are the channels' and then the residual.
  int n_args() const { return n_channel_args() + add; }
};

inline const char* FloatTypeName(FloatType type) {
  if (type == FloatType::kHalf) return "float16";
  return type == FloatType::kBfloat16 ? "bfloat16" : "float32";
}

// Reads the attribute. `n_args` tells the two forms of BatchNorm apart.
inline void ParseFusedOps(ArgShapes* shapes, const std::vector<std::string>& names, int n_args,
                          FusedOps* fused) {
  static const char* const kActivations[] = {
      "Relu", "Relu6", "Elu",       "LeakyRelu",       "Sigmoid",
      "Tanh", "Swish", "GeluExact", "GeluApproximate", "Mish"};
  *fused = FusedOps();
  bool add = false, batch_norm = false;
  uint32_t channels = EPILOGUE_NO_CHANNELS, activation = EPILOGUE_NO_ACTIVATION;
  bool legal = !names.empty();
  for (const std::string& name : names) {
    uint32_t found = EPILOGUE_NO_ACTIVATION;
    for (size_t i = 0; i < std::size(kActivations); ++i) {
      if (name == kActivations[i]) found = EPILOGUE_RELU + static_cast<uint32_t>(i);
    }
    if (found != EPILOGUE_NO_ACTIVATION) {
      legal = legal && activation == EPILOGUE_NO_ACTIVATION;
      activation = found;
    } else if (name == "Add") {
      legal = legal && !add && activation == EPILOGUE_NO_ACTIVATION;
      add = true;
    } else if (name == "BiasAdd" || name == "BatchNorm") {
      legal =
          legal && channels == EPILOGUE_NO_CHANNELS && !add && activation == EPILOGUE_NO_ACTIVATION;
      batch_norm = name == "BatchNorm";
      channels = batch_norm ? EPILOGUE_BATCH_NORM : EPILOGUE_BIAS;
    } else {
      legal = false;
    }
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  shapes->Require(
      legal,
      "fused_ops must be [BiasAdd or BatchNorm], [Add], [Relu, Relu6, Elu, LeakyRelu, "
      "Sigmoid, Tanh, Swish, GeluExact, GeluApproximate or Mish] in this order, each at "
      "most once and one at least, got [" +
          list + "].");
  if (!legal) return;
  if (batch_norm && n_args - add == 2) channels = EPILOGUE_SCALE_SHIFT;
  const FusedOps result = {channels, add, activation};
  const char* batch_norm_args =
      batch_norm ? " (BatchNorm: gamma, beta, mean, variance or scale, shift)" : "";
  shapes->Require(n_args == result.n_args(),
                  "args must have " + (batch_norm ? std::to_string(2 + add) + " or " : "") +
                      std::to_string(result.n_args()) + " tensors for fused_ops [" + list + "]" +
                      batch_norm_args + ", got " + std::to_string(n_args) + ".");
  if (n_args == result.n_args()) *fused = result;
}

// The types of args: `type` is the op's T.
inline void CheckFusedTypes(ArgShapes* shapes, const FusedOps& fused, FloatType type,
                            const std::vector<FloatType>& args) {
  const auto require = [&](int i, bool right, const std::string& expected) {
    shapes->Require(right, "args[" + std::to_string(i) + "] must be " + expected + ", got " +
                               FloatTypeName(args[i]) + ". Cast it first.");
  };
  const std::string t = FloatTypeName(type);
  if (fused.channels == EPILOGUE_BIAS) require(0, args[0] == type, t + " as input");
  if (fused.channels == EPILOGUE_SCALE_SHIFT) {
    require(0, args[0] == type || args[0] == FloatType::kFloat, t + " as input or float32");
    require(1, args[1] == args[0], std::string(FloatTypeName(args[0])) + " as args[0]");
  }
  if (fused.channels == EPILOGUE_BATCH_NORM) {
    for (int i = 0; i < 4; ++i) require(i, args[i] == FloatType::kFloat, "float32");
  }
  if (fused.add) require(fused.n_channel_args(), args.back() == type, t + " as input");
}

// args[0:] beside the output's shape, whose channels are dimension `channel_dim`.
inline void CheckFusedShapes(ArgShapes* shapes, const FusedOps& fused, const ArgShape& output,
                             int channel_dim, const std::vector<ArgShape>& args) {
  static const char* const kNames[][4] = {
      {},
      {"bias (args[0])"},
      {"scale (args[0])", "shift (args[1])"},
      {"gamma (args[0])", "beta (args[1])", "mean (args[2])", "variance (args[3])"}};
  const int64_t channels = output.known_rank ? output.dims[channel_dim] : -1;
  for (int i = 0; i < fused.n_channel_args(); ++i) {
    shapes->Expect(kNames[fused.channels][i], args[i],
                   {channels < 0 ? std::string("channels") : std::to_string(channels)});
  }
  if (!fused.add || !output.known_rank || !args.back().known_rank) return;
  const ArgShape& residual = args.back();
  bool same = residual.rank() == output.rank();
  for (int i = 0; same && i < output.rank(); ++i) {
    same = residual.dims[i] < 0 || output.dims[i] < 0 || residual.dims[i] == output.dims[i];
  }
  shapes->Require(same, "residual (args[" + std::to_string(fused.n_channel_args()) +
                            "]) must have the output's shape " + ToText(output) + ", got " +
                            ToText(residual) + ". It is not broadcast: add it outside.");
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_GEMM_FUSED_OPS_H_
