// Loading of .metallib files (ELF shared objects, hostmetal/msl/metallib_abi.h).
#ifndef HOSTMETAL_SRC_CPU_MODULE_H_
#define HOSTMETAL_SRC_CPU_MODULE_H_

#include <memory>
#include <string>
#include <string_view>

#include "hostmetal/src/driver.h"

namespace hostmetal {

// Whether kernels that have code for wider vectors run that: the processor has AVX-512, and
// HOSTMETAL_WIDE is not 0.
bool WideVectors();

std::shared_ptr<Module> LoadModuleFile(const std::string& path, bool checked, Failure* failure);
std::shared_ptr<Module> LoadModuleData(std::string_view bytes, const std::string& name,
                                       bool checked, Failure* failure);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CPU_MODULE_H_
