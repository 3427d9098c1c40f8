// The CUDA backend: NVIDIA GPUs through libcuda.
#ifndef HOSTMETAL_SRC_CUDA_DRIVER_H_
#define HOSTMETAL_SRC_CUDA_DRIVER_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "hostmetal/src/cuda/libcuda.h"
#include "hostmetal/src/cuda/memory.h"
#include "hostmetal/src/driver.h"

namespace hostmetal {
namespace cuda {

// A GPU as all parts of the backend see it.
struct Gpu {
  const Library* library;
  int number;
  int device;
  Context context;
  int capability;  // 90 for sm_90

  // To be called on every thread before anything else of the library.
  void Enter() const { library->CtxSetCurrent(context); }
};

// A kernel in the form in which the GPU runs it; hostmetal::Kernel::code points to it.
struct Compiled {
  const Gpu* gpu;
  cuda::Module module = nullptr;
  Function function = nullptr;
  mutable std::atomic<uint32_t> shared{
      48 << 10};  // bytes of a launch that the function has been set for
  ~Compiled();
};

std::shared_ptr<hostmetal::Module> NewModule(const Gpu& gpu,
                                             std::shared_ptr<hostmetal::Module> tables,
                                             const std::string& name, Failure* failure);
Failure Compile(const Gpu& gpu, Kernel* kernel);
std::unique_ptr<hostmetal::Stream> NewStream(const Gpu& gpu);

}  // namespace cuda
}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CUDA_DRIVER_H_
