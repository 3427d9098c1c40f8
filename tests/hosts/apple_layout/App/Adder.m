#import "Adder.h"

@implementation Adder
@synthesize device = _device;

- (instancetype)initWithDevice:(id<MTLDevice>)device error:(NSError**)error {
  if ((self = [super init])) {
    _device = [device retain];
    id<MTLLibrary> library = [[device newDefaultLibrary] autorelease];
    id<MTLFunction> function = [[library newFunctionWithName:@"add"] autorelease];
    _pipeline = [device newComputePipelineStateWithFunction:function error:error];
    _buffers = [[NSMutableDictionary alloc] init];
    if (!_pipeline) {
      [self release];
      return nil;
    }
  }
  return self;
}

- (void)dealloc {
  [_buffers release];
  [_pipeline release];
  [_device release];
  [super dealloc];
}

- (void)setNumbers:(const float*)numbers count:(NSUInteger)count forName:(NSString*)name {
  _buffers[name] = [[_device newBufferWithBytes:numbers
                                         length:count * sizeof(float)
                                        options:MTLResourceStorageModeShared] autorelease];
}

- (NSArray<NSNumber*>*)sum {
  NSUInteger length = _buffers[@"a"].length;
  id<MTLBuffer> sum = [[_device newBufferWithLength:length
                                            options:MTLResourceStorageModeShared] autorelease];
  id<MTLCommandQueue> queue = [[_device newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:_pipeline];
  NSArray* order = @[ @"a", @"b" ];
  for (NSUInteger i = 0; i < order.count; ++i)
    [encoder setBuffer:_buffers[order[i]] offset:0 atIndex:i];
  [encoder setBuffer:sum offset:0 atIndex:2];
  [encoder dispatchThreads:MTLSizeMake(length / sizeof(float), 1, 1)
      threadsPerThreadgroup:MTLSizeMake(_pipeline.threadExecutionWidth, 1, 1)];
  [encoder endEncoding];
  __block BOOL completed = NO;
  [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
    completed = done.status == MTLCommandBufferStatusCompleted;
  }];
  [commands commit];
  [commands waitUntilCompleted];
  if (!completed) return nil;
  NSMutableArray* numbers = [NSMutableArray array];
  for (NSUInteger i = 0; i < length / sizeof(float); ++i)
    [numbers addObject:@(((float*)sum.contents)[i])];
  return numbers;
}
@end
