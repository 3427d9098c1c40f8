// HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE: launches of kernels that look for races and the like while they
// run (hostmetal/msl/lib/checks.h).
#ifndef HOSTMETAL_SRC_CPU_CHECKS_H_
#define HOSTMETAL_SRC_CPU_CHECKS_H_

#include <string>
#include <vector>

#include "hostmetal/src/driver.h"

namespace hostmetal {

// The checks and findings of the launches of one Stream::Dispatch. They may overlap each other.
class CheckedBatch {
 public:
  explicit CheckedBatch(size_t launches);
  // For the launch with that number, which this thread is to run, all threadgroups by one call; nullptr where its kernel
  // was compiled without checks.
  metallib_checks* Of(size_t number, const Kernel& kernel, const metallib_launch& launch);
  // The findings of all of them, which are on the standard error then, too.
  Failure Reports() const;

 private:
  std::vector<metallib_checks> launches_;
  std::vector<metallib_fresh> fresh_;
};

// Private memory of which nothing is written yet, for HOSTMETAL_CHECK=init.
void AddFresh(void* memory, size_t bytes);
void RemoveFresh(void* memory);
// A copy or the like wrote to it.
void MarkWritten(const void* memory, size_t bytes);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_CHECKS_H_
