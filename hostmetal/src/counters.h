// MTLCounterSampleBuffer: slots that streams write times to.
#ifndef HOSTMETAL_SRC_COUNTERS_H_
#define HOSTMETAL_SRC_COUNTERS_H_

#import <Metal/Metal.h>

#include "hostmetal/src/device.h"
#include "hostmetal/src/encoder.h"

@interface HMCounterSampleBuffer : HMObject <MTLCounterSampleBuffer> {
 @public
  HMDevice* _device;
  NSString* _label;
  NSUInteger _count;
  std::atomic<uint64_t>* _slots;
}
// nil, and an error, for a descriptor that this device does not support.
+ (HMCounterSampleBuffer*)newOn:(HMDevice*)device
                     descriptor:(MTLCounterSampleBufferDescriptor*)descriptor
                          error:(NSError**)error;
@end

namespace hostmetal {

NSArray<id<MTLCounterSet>>* CounterSets();

// The samples of a pass' attachments: the first ones are encoded now, the last ones are kept for the
// encoder's end. An error of the command buffer where one of them does not fit.
void EncodeSamples(HMEncoder* encoder, MTLComputePassDescriptor* descriptor);
void EncodeSamples(HMEncoder* encoder, MTLBlitPassDescriptor* descriptor);
// One between an open encoder's commands. An error of the command buffer where the device or the sample buffer has none.
void EncodeSample(HMEncoder* encoder, id<MTLCounterSampleBuffer> samples, NSUInteger index);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_COUNTERS_H_
