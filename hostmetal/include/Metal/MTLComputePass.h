// Descriptor of a compute pass.
#ifndef HOSTMETAL_MTLCOMPUTEPASS_H_
#define HOSTMETAL_MTLCOMPUTEPASS_H_

#import <Metal/MTLCommandBuffer.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT
@interface MTLComputePassDescriptor : NSObject <NSCopying> {
 @private
  MTLDispatchType _dispatchType;
}
+ (MTLComputePassDescriptor*)computePassDescriptor;
@property(nonatomic) MTLDispatchType dispatchType;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCOMPUTEPASS_H_
