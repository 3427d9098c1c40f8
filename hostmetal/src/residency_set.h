// MTLResidencySet.
#ifndef HOSTMETAL_SRC_RESIDENCY_SET_H_
#define HOSTMETAL_SRC_RESIDENCY_SET_H_

#import <Metal/Metal.h>

#include "hostmetal/src/device.h"

@interface HMResidencySet : HMObject <MTLResidencySet> {
 @public
  HMDevice* _device;
  NSString* _setLabel;
  NSMutableSet* _wanted;  // guarded by the object's lock, as the members below
  NSSet* _committed;
}
- (id)initWithDevice:(HMDevice*)device descriptor:(MTLResidencySetDescriptor*)descriptor;
// Retained for the caller.
- (NSSet*)newCommitted;
@end

namespace hostmetal {

// A set of this device; nil for anything else.
HMResidencySet* ResidencySetOf(HMDevice* device, id object);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_RESIDENCY_SET_H_
