// Kernels that touch memory which is not mapped end; the process goes on.
#ifndef HOSTMETAL_SRC_CPU_PAGE_FAULT_H_
#define HOSTMETAL_SRC_CPU_PAGE_FAULT_H_

#include <stdint.h>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {

// kernel.run(launch, first, count, scratch), given up where it touches an address without memory.
// True and the address then (UINT64_MAX where the number is none); what the kernel wrote before
// stays.
bool RunUntilPageFault(const metallib_kernel& kernel, const metallib_launch& launch, uint64_t first,
                       uint64_t count, void* scratch, uint64_t* address);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_PAGE_FAULT_H_
