// Libraries, functions and the options of the shader compiler.
#ifndef HOSTMETAL_MTLLIBRARY_H_
#define HOSTMETAL_MTLLIBRARY_H_

#import <Metal/MTLArgument.h>
#import <Metal/MTLFunctionConstantValues.h>
#import <Metal/MTLFunctionDescriptor.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLArgumentEncoder;
@protocol MTLDevice;
@protocol MTLDynamicLibrary;

// Libraries made here have kernels and visible functions.
typedef NS_ENUM(NSUInteger, MTLFunctionType) {
  MTLFunctionTypeVertex = 1,
  MTLFunctionTypeFragment = 2,
  MTLFunctionTypeKernel = 3,
  MTLFunctionTypeVisible = 5,
  MTLFunctionTypeIntersection = 6,
  MTLFunctionTypeMesh = 7,
  MTLFunctionTypeObject = 8,
};

MTL_EXPORT
@interface MTLFunctionConstant : NSObject {
 @private
  NSString* _name;
  MTLDataType _type;
  NSUInteger _index;
  BOOL _required;
}
@property(readonly) NSString* name;
@property(readonly) MTLDataType type;
@property(readonly) NSUInteger index;
@property(readonly) BOOL required;
@end

@protocol MTLFunction <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLFunctionType functionType;
@property(readonly) NSString* name;
@property(readonly) NSDictionary<NSString*, MTLFunctionConstant*>* functionConstantsDictionary;
@property(readonly) MTLFunctionOptions options;
// nil where that buffer holds no struct.
- (nullable id<MTLArgumentEncoder>)newArgumentEncoderWithBufferIndex:(NSUInteger)bufferIndex;
- (nullable id<MTLArgumentEncoder>)
    newArgumentEncoderWithBufferIndex:(NSUInteger)bufferIndex
                           reflection:(__autoreleasing MTLArgument* _Nullable* _Nullable)reflection;
@end

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
  MTLLanguageVersion1_0 = (1 << 16),
  MTLLanguageVersion1_1 = (1 << 16) + 1,
  MTLLanguageVersion1_2 = (1 << 16) + 2,
  MTLLanguageVersion2_0 = (2 << 16),
  MTLLanguageVersion2_1 = (2 << 16) + 1,
  MTLLanguageVersion2_2 = (2 << 16) + 2,
  MTLLanguageVersion2_3 = (2 << 16) + 3,
  MTLLanguageVersion2_4 = (2 << 16) + 4,
  MTLLanguageVersion3_0 = (3 << 16) + 0,
  MTLLanguageVersion3_1 = (3 << 16) + 1,
  MTLLanguageVersion3_2 = (3 << 16) + 2,
  MTLLanguageVersion4_0 = (4 << 16) + 0,
};

typedef NS_ENUM(NSInteger, MTLLibraryType) {
  MTLLibraryTypeExecutable = 0,
  MTLLibraryTypeDynamic = 1,
};

typedef NS_ENUM(NSInteger, MTLLibraryOptimizationLevel) {
  MTLLibraryOptimizationLevelDefault = 0,
  MTLLibraryOptimizationLevelSize = 1,
};

typedef NS_ENUM(NSInteger, MTLCompileSymbolVisibility) {
  MTLCompileSymbolVisibilityDefault = 0,
  MTLCompileSymbolVisibilityHidden = 1,
};

typedef NS_ENUM(NSInteger, MTLMathMode) {
  MTLMathModeSafe = 0,
  MTLMathModeRelaxed = 1,
  MTLMathModeFast = 2,
};

typedef NS_ENUM(NSInteger, MTLMathFloatingPointFunctions) {
  MTLMathFloatingPointFunctionsFast = 0,
  MTLMathFloatingPointFunctionsPrecise = 1,
};

MTL_EXPORT
@interface MTLCompileOptions : NSObject <NSCopying> {
 @private
  NSDictionary<NSString*, NSObject*>* _preprocessorMacros;
  MTLLanguageVersion _languageVersion;
  MTLMathMode _mathMode;
  MTLMathFloatingPointFunctions _mathFloatingPointFunctions;
  MTLLibraryType _libraryType;
  NSString* _installName;
  NSArray<id<MTLDynamicLibrary>>* _libraries;
  MTLCompileSymbolVisibility _compileSymbolVisibility;
  BOOL _allowReferencingUndefinedSymbols;
  MTLLibraryOptimizationLevel _optimizationLevel;
  BOOL _preserveInvariance;
  NSUInteger _maxTotalThreadsPerThreadgroup;
  BOOL _enableLogging;
}
@property(nullable, readwrite, copy, nonatomic)
    NSDictionary<NSString*, NSObject*>* preprocessorMacros;
// YES by default, as on a Mac.
@property(readwrite, nonatomic) BOOL fastMathEnabled;
// The newer way to say it; one follows the other. Relaxed is taken as fast.
@property(readwrite, nonatomic) MTLMathMode mathMode;
// Functions are precise here either way.
@property(readwrite, nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions;
// There are no dynamic libraries: making one is an error.
@property(readwrite, nonatomic) MTLLibraryType libraryType;
// The libraries to link with: an error as well, unless it is nil or empty.
@property(nullable, readwrite, copy, nonatomic) NSArray<id<MTLDynamicLibrary>>* libraries;
// For dynamic libraries, kept.
@property(nullable, readwrite, copy, nonatomic) NSString* installName;
@property(readwrite, nonatomic) MTLCompileSymbolVisibility compileSymbolVisibility;
@property(readwrite, nonatomic) BOOL allowReferencingUndefinedSymbols;
@property(readwrite, nonatomic) MTLLibraryOptimizationLevel optimizationLevel;
@property(readwrite, nonatomic) BOOL preserveInvariance;
// The limit of the pipelines made from the library; 0: no limit of its own.
@property(readwrite, nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readwrite, nonatomic) MTLLanguageVersion languageVersion;
// os_log writes messages; else its calls are left out.
@property(readwrite, nonatomic) BOOL enableLogging;
@end

MTL_EXTERN NSErrorDomain const MTLLibraryErrorDomain;

typedef NS_ENUM(NSUInteger, MTLLibraryError) {
  MTLLibraryErrorUnsupported = 1,
  MTLLibraryErrorInternal = 2,
  MTLLibraryErrorCompileFailure = 3,
  MTLLibraryErrorCompileWarning = 4,
  MTLLibraryErrorFunctionNotFound = 5,
  MTLLibraryErrorFileNotFound = 6,
};

@protocol MTLLibrary <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSArray<NSString*>* functionNames;

// nil if the library has no such function, or the function needs constant values.
- (nullable id<MTLFunction>)newFunctionWithName:(NSString*)functionName;
- (nullable id<MTLFunction>)newFunctionWithName:(NSString*)name
                                 constantValues:(MTLFunctionConstantValues*)constantValues
                                          error:(__autoreleasing NSError**)error;
- (void)newFunctionWithName:(NSString*)name
             constantValues:(MTLFunctionConstantValues*)constantValues
          completionHandler:(void (^)(id<MTLFunction> _Nullable function,
                                      NSError* _Nullable error))completionHandler;
- (nullable id<MTLFunction>)newFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                                                error:(__autoreleasing NSError**)error;
- (void)newFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                completionHandler:(void (^)(id<MTLFunction> _Nullable function,
                                            NSError* _Nullable error))completionHandler;
@property(readonly) MTLLibraryType type;
@property(nullable, readonly) NSString* installName;  // nil
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLLIBRARY_H_
