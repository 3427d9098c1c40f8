// Descriptor of a blit pass; it has nothing to set.
#ifndef HOSTMETAL_MTLBLITPASS_H_
#define HOSTMETAL_MTLBLITPASS_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT
@interface MTLBlitPassDescriptor : NSObject <NSCopying>
+ (MTLBlitPassDescriptor*)blitPassDescriptor;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLBLITPASS_H_
