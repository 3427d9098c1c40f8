// The stream that tensorflow-metal hands to kernels through TF_GetStream: Apple's protocol, to the
// letter.
//
// On macOS tensorflow-metal's stream conforms to it, on Linux that of libmetal_device.so. There are
// four methods and no more: a fifth would make kernels that only run here.

#ifndef METAL_OPS_KERNELS_RUNTIME_TF_METAL_STREAM_H_
#define METAL_OPS_KERNELS_RUNTIME_TF_METAL_STREAM_H_

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

@protocol TF_MetalStream

// The serial queue on which all encoding happens: dispatch_sync(stream.queue, ^{ encode; [stream
// commit]; }).
- (dispatch_queue_t)queue;

// The command buffer to encode on: made at the first call, then the same one until it is committed.
// End every encoder before returning; the next kernel encodes on the same buffer.
- (id<MTLCommandBuffer>)currentCommandBuffer;

// Says that an encoding is complete. Only counts: work starts when the stream's batch is full or a
// caller waits.
- (void)commit;

// Commits and blocks until the device has finished.
- (void)commitAndWait;

@end

#endif  // METAL_OPS_KERNELS_RUNTIME_TF_METAL_STREAM_H_
