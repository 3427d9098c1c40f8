// The switches of the whole process. Functions ask when they are first run.

#ifndef METAL_OPS_GRAPH_SWITCHES_H_
#define METAL_OPS_GRAPH_SWITCHES_H_

#include <atomic>
#include <cstdint>

namespace metal_ops::fusion {

struct Switches {
  std::atomic<bool> enabled{true};
  // Nodes on the CPU: TensorFlow fuses there by itself, so this is for tests.
  std::atomic<bool> cpu{false};

  // Counts of this process.
  std::atomic<int64_t> graphs{0};  // looked at
  std::atomic<int64_t> fused{0};   // chains
  std::atomic<int64_t> errors{0};  // graphs that were left as they were because of an error
};

Switches& GlobalSwitches();

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_SWITCHES_H_
