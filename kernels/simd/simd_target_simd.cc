// METAL_OPS_SIMD: which of the instruction sets that the CPU kernels are compiled for they use.
// Read once, while the library loads. Adapters refuse to load where there is an error.

#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/simd/simd_targets.h"
// Sees what of Highway is compiled.
#include <hwy/targets.h>

#define METAL_OPS_EXPORT extern "C" __attribute__((visibility("default"), used))

namespace metal_ops {
namespace {

struct Target {
  std::string name;
  int64_t bit;
};

// The best first: Highway numbers its targets so.
std::vector<Target> Targets(int64_t bits) {
  std::vector<Target> targets;
  for (bits &= HWY_TARGETS; bits != 0; bits &= bits - 1) {
    const int64_t bit = bits & -bits;
    std::string name;
    for (const char* c = hwy::TargetName(bit); *c != '\0'; ++c) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    targets.push_back({name, bit});
  }
  return targets;
}

std::string Names(const std::vector<Target>& targets) {
  std::string names;
  for (const Target& target : targets) names += (names.empty() ? "" : ", ") + target.name;
  return names;
}

// The best instruction set of this processor, whatever was chosen.
int64_t OnThisProcessor() {
  static const int64_t bits = hwy::SupportedTargets();
  return bits;
}

// Empty, or the error.
std::string Choose(const std::string& name) {
  const std::vector<Target> here = Targets(OnThisProcessor());
  if (name.empty()) {
    hwy::DisableTargets(0);
    return "";
  }
  for (const Target& target : here) {
    if (target.name != name) continue;
    // Worse ones stay, for code that is not compiled for this one.
    hwy::DisableTargets(target.bit - 1);
    return "";
  }
  std::string why = "of which this library has no code";
  for (const Target& target : Targets(HWY_TARGETS)) {
    if (target.name == name) why = "which this processor does not have";
  }
  return "METAL_OPS_SIMD is '" + name + "', " + why + "; expected one of " + Names(here) +
         ", or nothing, which takes the first of them.";
}

const std::string& Error() {
  static const auto* const error = [] {
    const char* const name = std::getenv("METAL_OPS_SIMD");
    return new std::string(Choose(name == nullptr ? "" : name));
  }();
  return *error;
}

[[maybe_unused]] const bool read = (Error(), true);

}  // namespace
}  // namespace metal_ops

// The target that kernels use, by the name that METAL_OPS_SIMD has for it, e.g. "avx3".
METAL_OPS_EXPORT const char* metal_ops_simd_target() {
  static thread_local std::string name;
  name = metal_ops::Targets(hwy::SupportedTargets()).front().name;
  return name.c_str();
}

// The targets that may be chosen on this processor, with commas, the best first.
METAL_OPS_EXPORT const char* metal_ops_simd_targets() {
  static const std::string names =
      metal_ops::Names(metal_ops::Targets(metal_ops::OnThisProcessor()));
  return names.c_str();
}

// The error of METAL_OPS_SIMD; "" if there is none.
METAL_OPS_EXPORT const char* metal_ops_simd_error() { return metal_ops::Error().c_str(); }

// For tests: another target from now on ("" for the best), while no kernel runs. Returns what is
// wrong with the name, else "".
METAL_OPS_EXPORT const char* metal_ops_set_simd_target(const char* name) {
  static thread_local std::string error;
  error = metal_ops::Choose(name);
  return error.c_str();
}
