// Which of two ways a kernel goes, where an environment variable may say so.

#ifndef METAL_OPS_KERNELS_RUNTIME_CHOICE_H_
#define METAL_OPS_KERNELS_RUNTIME_CHOICE_H_

#include "kernels/runtime/status.h"

namespace metal_ops {

// Sets `first` by the variable, for tests and measurements; leaves it where that is not set. Looked
// at in each call, so that a process can compare the two.
Status AskedFor(const char* variable, const char* one, const char* other, bool* first);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_CHOICE_H_
