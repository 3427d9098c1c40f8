// MTLBinaryArchive.
#ifndef HOSTMETAL_SRC_BINARY_ARCHIVE_H_
#define HOSTMETAL_SRC_BINARY_ARCHIVE_H_

#import <Metal/Metal.h>

#include "hostmetal/src/device.h"
#include "hostmetal/src/library.h"

namespace hostmetal {

struct ArchiveState;

// Gives a kernel of `function` its code from the first of the archives that has it. False where none
// has; `why` says why one that has it was of no use.
bool TakeFromArchives(NSArray<id<MTLBinaryArchive>>* archives, HMFunction* function, Kernel* kernel,
                      std::string* why);

}  // namespace hostmetal

@interface HMBinaryArchive : HMLabelled <MTLBinaryArchive> {
 @public
  HMDevice* _device;
  hostmetal::ArchiveState* _state;
}
// nil, and an error, for a file that is none.
+ (HMBinaryArchive*)newOn:(HMDevice*)device
               descriptor:(MTLBinaryArchiveDescriptor*)descriptor
                    error:(NSError**)error;
@end

#endif  // HOSTMETAL_SRC_BINARY_ARCHIVE_H_
