// Hooks that learn what runs: see profile.h.

#include "kernels/runtime/profile.h"

#include "kernels/runtime/labels.h"
#include "kernels/runtime/platform.h"
#include "kernels/runtime/signpost.h"

namespace metal_ops {
namespace {

thread_local const RunningOp* current = nullptr;

}  // namespace

const ProfilerHooks* Profiling() {
  static const ProfilerHooks* const hooks = DeviceProfiler();
  const bool on = hooks != nullptr && hooks->on.load(std::memory_order_relaxed) != 0;
  return __builtin_expect(on, false) ? hooks : nullptr;
}

OpScope::OpScope(const RunningOp& op) : op_(op) {
  if (const ProfilerHooks* const profiler = Profiling()) profiler->begin(&op_);
  current = &op_;
  if (Labelled()) BeginSignpost(op_);
}

OpScope::~OpScope() {
  current = nullptr;
  if (Labelled()) EndSignpost();
  if (op_.began == 0) return;
  if (const ProfilerHooks* const profiler = Profiling()) profiler->end(op_);
}

const RunningOp* OpScope::Current() { return current; }

}  // namespace metal_ops
