// Runs the shader compiler (python/metal_ops/metal) for newLibraryWithSource.
#ifndef HOSTMETAL_SRC_COMPILER_H_
#define HOSTMETAL_SRC_COMPILER_H_

#include <string>
#include <utility>
#include <vector>

#include "hostmetal/src/driver.h"

namespace hostmetal {

struct CompileJob {
  std::string source;
  std::vector<std::pair<std::string, std::string>> macros;
  std::string standard;  // "metal3.1"; empty for the compiler's default
  std::string math;      // "-ffast-math", "-fno-fast-math" or empty
  std::string gpu;       // "sm_90", or empty for the CPU alone
  bool wide = false;     // for processors with vectors of 512 bits alone
  bool logging = false;  // os_log writes messages
  bool checked = false;  // kernels whose accesses are checked, instead of the others
  // Code of these alone. Empty: of all, or of none where there are many (METALLIB_KERNEL_ABSENT).
  std::vector<std::string> kernels;
  bool deferred = false;  // `source` is the text of Module::Deferred
};

// The requests of HOSTMETAL_DEBUG and HOSTMETAL_COVERAGE to the compiler, as its arguments.
std::vector<std::string> AskedByEnvironment();

// The bytes of the .metallib. HOSTMETAL_PYTHON names the interpreter and HOSTMETAL_COMPILER the
// compiler's folder when they are not where the package puts them.
std::string CompileSource(const CompileJob& job, Failure* failure);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_COMPILER_H_
