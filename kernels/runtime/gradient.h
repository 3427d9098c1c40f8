// The gradient of a declared op, as text that adapters carry out: by ops that are declared as well.
//
//   DECLARE_GRADIENT("Softshrink", "features = SoftshrinkGrad(d activations, features)");
//
// Left are inputs, right is an op whose outputs are their gradients in that order ("_": not used),
// in front of it "-" where the negative is. Its arguments are the first op's inputs and outputs,
// and "d y", the gradient of output y; "d? y" may be empty, which stands for zeros. Attributes that
// both ops have are the same; others follow a semicolon: "inverse=!inverse", "x_gradient=wanted x",
// "inputs=size inputs" (of the declared dimension), "T=type x". "MatMul(a, b)" is the product of
// matrices, and b may be an op's result. " if attribute", " if !attribute" and " if attribute=text"
// say when a rule holds. An input of no rule has no gradient, and neither has one of shape [0] that
// stands for none.

#ifndef METAL_OPS_KERNELS_RUNTIME_GRADIENT_H_
#define METAL_OPS_KERNELS_RUNTIME_GRADIENT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace metal_ops {
namespace internal {

// Rules by the op's name.
inline std::map<std::string, std::vector<std::string>>& Gradients() {
  static auto* const gradients = new std::map<std::string, std::vector<std::string>>();
  return *gradients;
}

}  // namespace internal

struct DeclaredGradient {
  DeclaredGradient(const char* op, std::vector<std::string> rules) {
    internal::Gradients()[op] = std::move(rules);
  }
};

}  // namespace metal_ops

#define METAL_OPS_GRADIENT_NAME_(number) declared_gradient_##number
#define METAL_OPS_GRADIENT_NAME(number) METAL_OPS_GRADIENT_NAME_(number)
#define DECLARE_GRADIENT(op, ...)                                                      \
  [[maybe_unused]] static const ::metal_ops::DeclaredGradient METAL_OPS_GRADIENT_NAME( \
      __COUNTER__)(op, {__VA_ARGS__})

#endif  // METAL_OPS_KERNELS_RUNTIME_GRADIENT_H_
