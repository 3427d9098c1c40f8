// The hints of a pipeline about its buffers, which change nothing here.
#ifndef HOSTMETAL_MTLPIPELINE_H_
#define HOSTMETAL_MTLPIPELINE_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MTLMutability) {
  MTLMutabilityDefault = 0,
  MTLMutabilityMutable = 1,
  MTLMutabilityImmutable = 2,
};

MTL_EXPORT
@interface MTLPipelineBufferDescriptor : NSObject <NSCopying> {
 @private
  MTLMutability _mutability;
}
@property(nonatomic) MTLMutability mutability;
@end

MTL_EXPORT
@interface MTLPipelineBufferDescriptorArray : NSObject {
 @private
  NSMutableDictionary* _descriptors;
}
- (MTLPipelineBufferDescriptor*)objectAtIndexedSubscript:(NSUInteger)bufferIndex;
- (void)setObject:(nullable MTLPipelineBufferDescriptor*)buffer
    atIndexedSubscript:(NSUInteger)bufferIndex;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLPIPELINE_H_
