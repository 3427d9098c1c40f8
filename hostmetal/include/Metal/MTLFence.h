// Fences order the encoders of one queue. Here these run one after the other in commit order
// anyway.
#ifndef HOSTMETAL_MTLFENCE_H_
#define HOSTMETAL_MTLFENCE_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@protocol MTLFence <NSObject>
@property(readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLFENCE_H_
