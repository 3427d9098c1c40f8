// Hooks that learn what runs while the device is profiled, and which op a thread is at.

#ifndef METAL_OPS_KERNELS_RUNTIME_PROFILE_H_
#define METAL_OPS_KERNELS_RUNTIME_PROFILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace metal_ops {

// The profiler's number of a name, kept where the name is: looking names up would be most of the
// cost of a profiled launch. A number always means the same name.
struct NumberedName {
  mutable std::atomic<uint64_t> number{0};  // above its 32 bits, of which stretch of profiling
};

// Those of a kernel.
struct KernelNames {
  NumberedName type, node;
};

// The op whose kernel the calling thread runs.
struct RunningOp {
  const char* type;
  void* context;
  const char* (*node)(void* context, size_t* length);  // the node's name, while the kernel runs
  const KernelNames* names;                            // nullptr: none are kept
  uint64_t began = 0;                                  // 0: no profiler ran then
  mutable uint32_t numbers[2] = {0, 0};                // the profiler's, of type and node
};

// Work that gets its times from the device. Numbers are those of python/metal_ops/profiler.py.
enum class PassKind : uint32_t { kDispatch = 0, kCopy = 1, kFill = 2, kToDevice = 3 };

struct ProfiledPass {
  PassKind kind = PassKind::kDispatch;
  const char* name = "";  // the shader's name, or the work's
  const NumberedName* number = nullptr;
  const RunningOp* op = nullptr;
  uint64_t bytes = 0;  // of the buffers bound, or moved
  uint32_t grid[3] = {0, 0, 0};
  uint32_t group[3] = {0, 0, 0};
};

// The device's side. The encoders are those of the stream's current command buffer, with the
// samples of their times; nil where the stream is another device's.
struct ProfilerHooks {
  std::atomic<uint32_t> on{0};
  // The device takes times between launches: `before` and `after` are called around each. Else each
  // has a pass to itself, which `compute` begins.
  std::atomic<bool> samples_launches{false};
  // The argument of `after`; nullptr where no time is taken.
  void* (*before)(void* stream, void* encoder, const ProfiledPass& pass);
  void (*after)(void* sampled, void* encoder);
  void* (*compute)(void* stream, const ProfiledPass& pass);
  void* (*blit)(void* stream, const ProfiledPass& pass);
  void (*begin)(RunningOp* op);  // now
  void (*end)(const RunningOp& op);
};

// nullptr where no profiler runs.
const ProfilerHooks* Profiling();

// Kernels run one at a time on a thread, and name themselves while they do.
class OpScope {
 public:
  explicit OpScope(const RunningOp& op);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

  // nullptr outside of a kernel.
  static const RunningOp* Current();

 private:
  RunningOp op_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_PROFILE_H_
