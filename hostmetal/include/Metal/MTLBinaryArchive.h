// Binary archives: compiled pipelines in a file of the program's own.
#ifndef HOSTMETAL_MTLBINARYARCHIVE_H_
#define HOSTMETAL_MTLBINARYARCHIVE_H_

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;
@protocol MTLLibrary;
@class MTLComputePipelineDescriptor;
@class MTLFunctionDescriptor;

MTL_EXTERN NSErrorDomain const MTLBinaryArchiveDomain;

typedef NS_ENUM(NSUInteger, MTLBinaryArchiveError) {
  MTLBinaryArchiveErrorNone = 0,
  MTLBinaryArchiveErrorInvalidFile = 1,
  MTLBinaryArchiveErrorUnexpectedElement = 2,
  MTLBinaryArchiveErrorCompilationFailure = 3,
  MTLBinaryArchiveErrorInternalError = 4,
};

MTL_EXPORT
@interface MTLBinaryArchiveDescriptor : NSObject <NSCopying> {
 @private
  NSURL* _url;
}
// The file to read; nil for an empty archive.
@property(nullable, copy, nonatomic) NSURL* url;
@end

// An archive is native code that runs with the rights of this process: load only files that you
// would run. Damaged ones are errors; code for another processor is not found in them.
@protocol MTLBinaryArchive <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
// Compiles functions without code.
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(__autoreleasing NSError**)error;
// A function of `library` by itself, as pipelines that link it ask for.
- (BOOL)addFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                          library:(id<MTLLibrary>)library
                            error:(__autoreleasing NSError**)error;
// The file's folder has to exist.
- (BOOL)serializeToURL:(NSURL*)url error:(__autoreleasing NSError**)error;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLBINARYARCHIVE_H_
