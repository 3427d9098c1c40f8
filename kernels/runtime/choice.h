// The choice between variants of a kernel, which an environment variable may make.

#ifndef METAL_OPS_KERNELS_RUNTIME_CHOICE_H_
#define METAL_OPS_KERNELS_RUNTIME_CHOICE_H_

#include <initializer_list>

#include "kernels/runtime/dtype.h"
#include "kernels/runtime/status.h"

namespace metal_ops {

// Sets `way` by the variable, for tests and measurements; leaves it where that is not set. Looked at
// in each call, so that a process can compare them.
Status AskedFor(const char* variable, std::initializer_list<const char*> ways, int* way);
// The choice between two.
Status AskedFor(const char* variable, const char* one, const char* other, bool* first);

// How many threads have a row of a norm: a SIMD group where those run at once, else one.
// METAL_OPS_ROW_NORM, or the device.
Status ChooseRowLanes(int* lanes);

// Whether simdgroups that multiply matrices of this type are the device's own way: its threads run at
// once, and its matrix unit takes the type, which a discrete GPU's does not float32.
bool SimdgroupsMultiply(DType type);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_CHOICE_H_
