// Captures for Xcode's GPU debugger. There is none here: as on a Mac without
// METAL_CAPTURE_ENABLED=1, no destination is supported and starting is an error.
#ifndef HOSTMETAL_MTLCAPTUREMANAGER_H_
#define HOSTMETAL_MTLCAPTUREMANAGER_H_

#import <Metal/MTLCaptureScope.h>
#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXTERN NSErrorDomain const MTLCaptureErrorDomain;

typedef NS_ENUM(NSInteger, MTLCaptureError) {
  MTLCaptureErrorNotSupported = 1,
  MTLCaptureErrorAlreadyCapturing,
  MTLCaptureErrorInvalidDescriptor,
};

typedef NS_ENUM(NSInteger, MTLCaptureDestination) {
  MTLCaptureDestinationDeveloperTools = 1,
  MTLCaptureDestinationGPUTraceDocument,
};

MTL_EXPORT
@interface MTLCaptureDescriptor : NSObject <NSCopying> {
 @private
  id _captureObject;
  MTLCaptureDestination _destination;
  NSURL* _outputURL;
}
@property(nonatomic, retain, nullable) id captureObject;
@property(nonatomic, assign) MTLCaptureDestination destination;
@property(nonatomic, copy, nullable) NSURL* outputURL;
@end

MTL_EXPORT
@interface MTLCaptureManager : NSObject {
 @private
  id<MTLCaptureScope> _defaultCaptureScope;
}
+ (MTLCaptureManager*)sharedCaptureManager;
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device;
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)commandQueue;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor
                             error:(__autoreleasing NSError* _Nullable* _Nullable)error;
// For older programs, which get no error.
- (void)startCaptureWithDevice:(id<MTLDevice>)device;
- (void)startCaptureWithCommandQueue:(id<MTLCommandQueue>)commandQueue;
- (void)startCaptureWithScope:(id<MTLCaptureScope>)captureScope;
- (void)stopCapture;
@property(nullable, readwrite, retain, atomic) id<MTLCaptureScope> defaultCaptureScope;
@property(readonly) BOOL isCapturing;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLCAPTUREMANAGER_H_
