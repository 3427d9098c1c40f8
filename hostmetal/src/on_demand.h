// Libraries whose kernels are compiled when a pipeline asks for them.
#ifndef HOSTMETAL_SRC_ON_DEMAND_H_
#define HOSTMETAL_SRC_ON_DEMAND_H_

#include <memory>

#include "hostmetal/src/compiler.h"
#include "hostmetal/src/driver.h"

namespace hostmetal {

// The library of a source: all of it, or the descriptions of its kernels where these are many.
std::shared_ptr<Module> CompileModule(Driver* driver, CompileJob job, Failure* failure);

// A loaded library whose kernels' code is made from the text it names, if it has one; else the same.
std::shared_ptr<Module> WithDeferredCode(Driver* driver, std::shared_ptr<Module> tables,
                                         bool checked);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_ON_DEMAND_H_
