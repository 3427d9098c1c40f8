// Dynamic libraries: functions that other libraries are linked with when they are loaded. No device
// here makes any (supportsDynamicLibraries is NO).
#ifndef HOSTMETAL_MTLDYNAMICLIBRARY_H_
#define HOSTMETAL_MTLDYNAMICLIBRARY_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

MTL_EXTERN NSErrorDomain const MTLDynamicLibraryDomain;

typedef NS_ENUM(NSUInteger, MTLDynamicLibraryError) {
  MTLDynamicLibraryErrorNone = 0,
  MTLDynamicLibraryErrorInvalidFile = 1,
  MTLDynamicLibraryErrorCompilationFailure = 2,
  MTLDynamicLibraryErrorUnresolvedInstallName = 3,
  MTLDynamicLibraryErrorDependencyLoadFailure = 4,
  MTLDynamicLibraryErrorUnsupported = 5,
};

@protocol MTLDynamicLibrary <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSString* installName;
- (BOOL)serializeToURL:(NSURL*)url error:(__autoreleasing NSError**)error;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLDYNAMICLIBRARY_H_
