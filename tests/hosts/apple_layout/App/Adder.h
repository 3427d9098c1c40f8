#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

NS_ASSUME_NONNULL_BEGIN

@interface Adder : NSObject {
  id<MTLDevice> _device;
  id<MTLComputePipelineState> _pipeline;
  NSMutableDictionary<NSString*, id<MTLBuffer>>* _buffers;
}
@property(nonatomic, readonly) id<MTLDevice> device;
- (nullable instancetype)initWithDevice:(id<MTLDevice>)device error:(NSError**)error;
- (void)setNumbers:(const float*)numbers count:(NSUInteger)count forName:(NSString*)name;
- (nullable NSArray<NSNumber*>*)sum;
@end

NS_ASSUME_NONNULL_END
