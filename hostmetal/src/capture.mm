// MTLCaptureManager: there is no GPU debugger to capture for, and it says so.
#include "hostmetal/src/device.h"
#include "hostmetal/src/errors.h"

NSErrorDomain const MTLCaptureErrorDomain = @"MTLCaptureErrorDomain";

@interface HMCaptureScope : HMLabelled <MTLCaptureScope> {
 @public
  id<MTLDevice> _device;
  id<MTLCommandQueue> _queue;
}
@end

@implementation HMCaptureScope
- (void)dealloc {
  [_queue release];
  [super dealloc];
}
- (void)beginScope {
}
- (void)endScope {
}
- (id<MTLDevice>)device {
  return _device;
}
- (id<MTLCommandQueue>)commandQueue {
  return _queue;
}
@end

@implementation MTLCaptureDescriptor
- (id)init {
  self = [super init];
  if (self) _destination = MTLCaptureDestinationDeveloperTools;
  return self;
}
- (void)dealloc {
  [_captureObject release];
  [_outputURL release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCaptureDescriptor* copy = [[MTLCaptureDescriptor alloc] init];
  [copy setCaptureObject:_captureObject];
  [copy setDestination:_destination];
  [copy setOutputURL:_outputURL];
  return copy;
}
@synthesize captureObject = _captureObject;
@synthesize destination = _destination;
@synthesize outputURL = _outputURL;
@end

@implementation MTLCaptureManager
+ (MTLCaptureManager*)sharedCaptureManager {
  static MTLCaptureManager* shared = [[MTLCaptureManager alloc] init];
  return shared;
}
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device {
  HMCaptureScope* scope = [[HMCaptureScope alloc] init];
  scope->_device = device;
  return scope;
}
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)queue {
  HMCaptureScope* scope = [[HMCaptureScope alloc] init];
  scope->_device = [queue device];
  scope->_queue = [queue retain];
  return scope;
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination {
  return NO;
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError**)error {
  hostmetal::Refuse(error, MTLCaptureErrorDomain, MTLCaptureErrorNotSupported,
                    "[startCaptureWithDescriptor] captures are not supported: there is no Metal "
                    "debugger on this platform");
  return NO;
}
- (void)startCaptureWithDevice:(id<MTLDevice>)device {
}
- (void)startCaptureWithCommandQueue:(id<MTLCommandQueue>)queue {
}
- (void)startCaptureWithScope:(id<MTLCaptureScope>)scope {
}
- (void)stopCapture {
}
- (BOOL)isCapturing {
  return NO;
}
@synthesize defaultCaptureScope = _defaultCaptureScope;
@end
