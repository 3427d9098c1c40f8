// Intervals in Instruments, where the system has it: the call of each kernel on the host, by its op and node.

#ifndef METAL_OPS_KERNELS_RUNTIME_SIGNPOST_H_
#define METAL_OPS_KERNELS_RUNTIME_SIGNPOST_H_

#include "kernels/runtime/profile.h"

#if __has_include(<os/signpost.h>)

#include <os/log.h>
#include <os/signpost.h>

#include <string>

namespace metal_ops {

inline os_log_t SignpostLog() {
  static const os_log_t log = os_log_create("metal_ops", "ops");
  return log;
}

// A kernel runs after the other on a thread, so that a thread has one interval at most.
inline os_signpost_id_t& ThreadSignpost() {
  static thread_local os_signpost_id_t id = OS_SIGNPOST_ID_NULL;
  return id;
}

inline void BeginSignpost(const RunningOp& op) {
  if (!os_signpost_enabled(SignpostLog())) return;
  size_t length = 0;
  const char* const name = op.node(op.context, &length);
  const std::string node(name, length);
  ThreadSignpost() = os_signpost_id_generate(SignpostLog());
  os_signpost_interval_begin(SignpostLog(), ThreadSignpost(), "op", "%{public}s %{public}s",
                             op.type, node.c_str());
}

inline void EndSignpost() {
  if (ThreadSignpost() == OS_SIGNPOST_ID_NULL) return;
  os_signpost_interval_end(SignpostLog(), ThreadSignpost(), "op");
  ThreadSignpost() = OS_SIGNPOST_ID_NULL;
}

}  // namespace metal_ops

#else

namespace metal_ops {

inline void BeginSignpost(const RunningOp&) {}
inline void EndSignpost() {}

}  // namespace metal_ops

#endif

#endif  // METAL_OPS_KERNELS_RUNTIME_SIGNPOST_H_
