// Optimizers' steps on the Metal device: the variables are updated in place when the stream gets there.

#include <vector>

#include "kernels/optimizer_step/optimizer_step_params.h"
#include "kernels/runtime/metal_call.h"

namespace metal_ops {
namespace {

// The variable's state, then numbers, each an input's or nothing.
Status Step(MetalCall& call, const char* shader, OptimizerStepParams params,
            const std::vector<Argument>& more) {
  const Tensor& gradient = call.in(call.Index("gradient"));
  if (gradient.num_elements() == 0) return Status();
  params.n_elements = static_cast<uint64_t>(gradient.num_elements());
  std::vector<Argument> arguments = {{"x", call.in(0)}, {"gradient", gradient}, {"params", params}};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return call.Launch({shader, gradient.dtype()}, Grid::Flat(gradient.num_elements()), arguments);
}

Value InputIf(MetalCall& call, bool there, const char* name) {
  return there ? Value(call.in(call.Index(name))) : Value(Nothing());
}

Status Adam(MetalCall& call) {
  OptimizerStepParams params = {};
  params.second = call.Int("n_hats") == 1;
  const auto in = [&](const char* name) { return InputIf(call, true, name); };
  return Step(call, "adam_step", params,
              {{"m", in("m")},
               {"v", in("v")},
               {"hat", InputIf(call, params.second, "hats")},
               {"alpha", in("alpha")},
               {"one_minus_beta1", in("one_minus_beta1")},
               {"one_minus_beta2", in("one_minus_beta2")},
               {"epsilon", in("epsilon")}});
}
METAL_KERNEL("ResourceAdamStep", Adam);

Status Rmsprop(MetalCall& call) {
  OptimizerStepParams params = {};
  params.second = call.Int("n_averages") == 1;
  params.momentum = call.Int("n_momenta") == 1;
  const auto in = [&](const char* name) { return InputIf(call, true, name); };
  return Step(call, "rmsprop_step", params,
              {{"velocity", in("velocity")},
               {"average", InputIf(call, params.second, "averages")},
               {"m", InputIf(call, params.momentum, "momenta")},
               {"rate", in("lr")},
               {"rho", in("rho")},
               {"one_minus_rho", in("one_minus_rho")},
               {"epsilon", in("epsilon")},
               {"momentum", InputIf(call, params.momentum, "momentum")}});
}
METAL_KERNEL("ResourceRmspropStep", Rmsprop);

Status Adagrad(MetalCall& call) {
  const auto in = [&](const char* name) { return InputIf(call, true, name); };
  return Step(call, "adagrad_step", {},
              {{"sum", in("accumulator")}, {"rate", in("lr")}, {"epsilon", in("epsilon")}});
}
METAL_KERNEL("ResourceAdagradStep", Adagrad);

}  // namespace
}  // namespace metal_ops
