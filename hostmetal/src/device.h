// MTLDevice, and the methods of every object of one.
#ifndef HOSTMETAL_SRC_DEVICE_H_
#define HOSTMETAL_SRC_DEVICE_H_

#import <Metal/Metal.h>

#include <atomic>

#include "hostmetal/src/device_features.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/object.h"

@class HMBuffer;

@interface HMDevice : HMDeviceFeatures <MTLDevice> {
 @public
  hostmetal::Driver* _driver;
  std::atomic<uint64_t> _allocated;
  BOOL _validate;           // METAL_DEVICE_WRAPPER_TYPE=1
  BOOL _checked;            // that, or ChecksKernels(): kernels are compiled for it
  BOOL _onlySamplesStages;  // HOSTMETAL_COUNTERS=stages: times at the boundaries of passes alone
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                             options:(MTLResourceOptions)options
                              zeroed:(BOOL)zeroed;
- (HMBuffer*)newBufferOver:(void*)pointer
                    length:(NSUInteger)length
                   options:(MTLResourceOptions)options;
@end

#endif  // HOSTMETAL_SRC_DEVICE_H_
