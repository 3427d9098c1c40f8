// Kernels that touch memory which is not mapped, or run for too long, end; the process goes on.
#ifndef HOSTMETAL_SRC_CPU_PAGE_FAULT_H_
#define HOSTMETAL_SRC_CPU_PAGE_FAULT_H_

#include <stdint.h>

#include <atomic>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {

enum class End { kDone, kPageFault, kTimeout };

// kernel.run(launch, first, count, scratch), given up where it touches an address without memory:
// the address then (UINT64_MAX where the number is none). With `expired` it is given up, too, at an
// Interrupt() of this thread that finds it set. The kernel's earlier writes stay.
End RunGuarded(const metallib_kernel& kernel, const metallib_launch& launch, uint64_t first,
               uint64_t count, void* scratch, const std::atomic<bool>* expired, uint64_t* address);

// Has a thread of this process look at its `expired`; any other thread does not mind.
void Interrupt(int thread);

// While it lives, this thread can be interrupted: signals may come, on a stack of their own, as a
// fiber's has no room for them.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();

 private:
  bool blocked_;
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_PAGE_FAULT_H_
