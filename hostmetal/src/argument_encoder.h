// MTLArgumentEncoder.
#ifndef HOSTMETAL_SRC_ARGUMENT_ENCODER_H_
#define HOSTMETAL_SRC_ARGUMENT_ENCODER_H_

#import <Metal/Metal.h>

#include <memory>

#include "hostmetal/src/device.h"
#include "hostmetal/src/struct_type.h"

namespace hostmetal {

// For a struct of this size and alignment.
id<MTLArgumentEncoder> NewArgumentEncoder(HMDevice* device, const std::shared_ptr<const Type>& type,
                                          size_t size, size_t alignment);
// An encoder for MTLArgumentDescriptors; nil after an error.
id<MTLArgumentEncoder> NewArgumentEncoder(HMDevice* device, NSArray* arguments);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_ARGUMENT_ENCODER_H_
