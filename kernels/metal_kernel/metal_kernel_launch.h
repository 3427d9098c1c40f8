// The launch of a call of MetalKernel, from its first input and its `arguments`, for all devices.

#ifndef METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_LAUNCH_H_
#define METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_LAUNCH_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace metal_ops {

// One of the shader's arguments: "x_shape=shape:0".
struct MetalKernelArgument {
  enum Kind { kInput, kOutput, kParam, kThreadgroup, kShape, kStrides, kNdim, kSize };

  std::string name;
  Kind kind = kInput;
  size_t number = 0;

  bool Read(const std::string& text) {
    static const char* const kKinds[] = {"input", "output",  "param", "threadgroup",
                                         "shape", "strides", "ndim",  "size"};
    const size_t equals = text.find('='), colon = text.find(':');
    if (equals == 0 || equals == std::string::npos || colon == std::string::npos) return false;
    if (colon < equals || colon + 1 == text.size() || text.size() - colon > 4) return false;
    name = text.substr(0, equals);
    number = 0;
    for (size_t i = colon + 1; i < text.size(); ++i) {
      if (text[i] < '0' || text[i] > '9') return false;
      number = 10 * number + static_cast<size_t>(text[i] - '0');
    }
    const std::string word = text.substr(equals + 1, colon - equals - 1);
    for (int i = 0; i <= kSize; ++i) {
      kind = static_cast<Kind>(i);
      if (word == kKinds[i]) return true;
    }
    return false;
  }
};

inline size_t CountThreadgroupArguments(const std::vector<std::string>& arguments) {
  size_t count = 0;
  MetalKernelArgument argument;
  for (const std::string& text : arguments) {
    count += argument.Read(text) && argument.kind == MetalKernelArgument::kThreadgroup;
  }
  return count;
}

inline std::string NotDeterministic(const std::string& function) {
  return "[" + function +
         "] may use atomics, so its results may depend on the order of threads, and ops have to be "
         "deterministic here (tf.config.experimental.enable_op_determinism). Let one thread write "
         "each element, without atomic_outputs, or switch that off";
}

// The numbers of the input `launch`, by name.
struct MetalKernelLaunch {
  int64_t grid[3], group[3];
  std::vector<int64_t> threadgroup_bytes;
  std::vector<std::vector<int64_t>> shapes;

  // The error in it, or "".
  std::string Read(const int64_t* values, int64_t n, size_t n_threadgroup, size_t n_outputs) {
    const int64_t* const end = values + n;
    const auto left = [&] { return end - values; };
    const std::string cut = "launch: has too few numbers (" + std::to_string(n) + ")";
    if (left() < 6 + static_cast<int64_t>(n_threadgroup)) return cut;
    for (int64_t& threads : grid) {
      threads = *values++;
      if (threads < 0) return "grid: a side of " + std::to_string(threads) + " threads";
    }
    bool chosen = false;
    for (int64_t& threads : group) {
      threads = *values++;
      chosen = chosen || threads != 0;
    }
    for (const int64_t threads : group) {
      if (chosen && threads < 1) {
        return "threadgroup: a side of " + std::to_string(threads) + " threads";
      }
    }
    constexpr int64_t kMaxThreadgroupBytes = int64_t{1} << 20;  // far above any device's
    for (size_t i = 0; i < n_threadgroup; ++i) {
      const int64_t bytes = *values++;
      if (bytes < 1 || bytes > kMaxThreadgroupBytes) {
        return "threadgroup_memory: " + std::to_string(bytes) + " bytes; expected 1 to " +
               std::to_string(kMaxThreadgroupBytes);
      }
      threadgroup_bytes.push_back(bytes);
    }
    for (size_t i = 0; i < n_outputs; ++i) {
      if (left() < 1) return cut;
      const int64_t rank = *values++;
      constexpr int64_t kMaxRank = 254;  // TensorFlow's
      if (rank < 0 || rank > kMaxRank) return "an output of rank " + std::to_string(rank);
      if (left() < rank) return cut;
      shapes.emplace_back(values, values + rank);
      values += rank;
      int64_t elements = 1;
      for (const int64_t dim : shapes.back()) {
        if (dim < 0)
          return "shapes: output " + std::to_string(i) + " has a negative size, " +
                 std::to_string(dim);
        if (dim > 0 && elements > (std::numeric_limits<int64_t>::max() >> 4) / dim) {
          return "shapes: output " + std::to_string(i) + " is too large";
        }
        elements *= dim;
      }
    }
    if (left() != 0) return "launch: has too many numbers (" + std::to_string(n) + ")";
    return "";
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_LAUNCH_H_
