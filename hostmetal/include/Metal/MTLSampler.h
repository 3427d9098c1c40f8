// Samplers: how a texture is read between and outside its pixels.
#ifndef HOSTMETAL_MTLSAMPLER_H_
#define HOSTMETAL_MTLSAMPLER_H_

#import <Metal/MTLDefines.h>

#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

typedef NS_ENUM(NSUInteger, MTLSamplerMinMagFilter) {
  MTLSamplerMinMagFilterNearest = 0,
  MTLSamplerMinMagFilterLinear = 1,
};

typedef NS_ENUM(NSUInteger, MTLSamplerMipFilter) {
  MTLSamplerMipFilterNotMipmapped = 0,
  MTLSamplerMipFilterNearest = 1,
  MTLSamplerMipFilterLinear = 2,
};

typedef NS_ENUM(NSUInteger, MTLSamplerAddressMode) {
  MTLSamplerAddressModeClampToEdge = 0,
  MTLSamplerAddressModeMirrorClampToEdge = 1,
  MTLSamplerAddressModeRepeat = 2,
  MTLSamplerAddressModeMirrorRepeat = 3,
  MTLSamplerAddressModeClampToZero = 4,
  MTLSamplerAddressModeClampToBorderColor = 5,
};

typedef NS_ENUM(NSUInteger, MTLSamplerBorderColor) {
  MTLSamplerBorderColorTransparentBlack = 0,
  MTLSamplerBorderColorOpaqueBlack = 1,
  MTLSamplerBorderColorOpaqueWhite = 2,
};

typedef NS_ENUM(NSUInteger, MTLCompareFunction) {
  MTLCompareFunctionNever = 0,
  MTLCompareFunctionLess = 1,
  MTLCompareFunctionEqual = 2,
  MTLCompareFunctionLessEqual = 3,
  MTLCompareFunctionGreater = 4,
  MTLCompareFunctionNotEqual = 5,
  MTLCompareFunctionGreaterEqual = 6,
  MTLCompareFunctionAlways = 7,
};

MTL_EXPORT
@interface MTLSamplerDescriptor : NSObject <NSCopying> {
 @private
  MTLSamplerMinMagFilter _minFilter, _magFilter;
  MTLSamplerMipFilter _mipFilter;
  NSUInteger _maxAnisotropy;
  MTLSamplerAddressMode _sAddressMode, _tAddressMode, _rAddressMode;
  MTLSamplerBorderColor _borderColor;
  MTLCompareFunction _compareFunction;
  BOOL _normalizedCoordinates, _supportArgumentBuffers;
  float _lodMinClamp, _lodMaxClamp;
  NSString* _label;
}
@property(nonatomic) MTLSamplerMinMagFilter minFilter;
@property(nonatomic) MTLSamplerMinMagFilter magFilter;
@property(nonatomic) MTLSamplerMipFilter mipFilter;
// Kernels sample without derivatives: one sample, whatever is asked for.
@property(nonatomic) NSUInteger maxAnisotropy;
@property(nonatomic) MTLSamplerAddressMode sAddressMode;
@property(nonatomic) MTLSamplerAddressMode tAddressMode;
@property(nonatomic) MTLSamplerAddressMode rAddressMode;
@property(nonatomic) MTLSamplerBorderColor borderColor;
// The comparison of sample_compare and gather_compare of depth textures; never by default.
@property(nonatomic) MTLCompareFunction compareFunction;
@property(nonatomic) BOOL normalizedCoordinates;
@property(nonatomic) float lodMinClamp;
@property(nonatomic) float lodMaxClamp;
@property(nonatomic) BOOL supportArgumentBuffers;
@property(nullable, copy, nonatomic) NSString* label;
@end

@protocol MTLSamplerState <NSObject>
// For an argument buffer, as long as the object lives.
@property(readonly) MTLResourceID gpuResourceID;
@property(nullable, readonly) NSString* label;
@property(readonly) id<MTLDevice> device;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLSAMPLER_H_
