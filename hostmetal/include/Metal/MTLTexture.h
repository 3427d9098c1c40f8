// Textures that kernels read, write and sample: 1D, 2D, 3D, cubes, arrays of 1D and 2D ones and of
// cubes, and textures over a buffer.
#ifndef HOSTMETAL_MTLTEXTURE_H_
#define HOSTMETAL_MTLTEXTURE_H_

#import <Metal/MTLPixelFormat.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer;

// A device makes no multisample textures: newTextureWithDescriptor: returns nil for them.
typedef NS_ENUM(NSUInteger, MTLTextureType) {
  MTLTextureType1D = 0,
  MTLTextureType1DArray = 1,
  MTLTextureType2D = 2,
  MTLTextureType2DArray = 3,
  MTLTextureType2DMultisample = 4,
  MTLTextureTypeCube = 5,
  MTLTextureTypeCubeArray = 6,
  MTLTextureType3D = 7,
  MTLTextureType2DMultisampleArray = 8,
  MTLTextureTypeTextureBuffer = 9,
};

typedef NS_OPTIONS(NSUInteger, MTLTextureUsage) {
  MTLTextureUsageUnknown = 0x0000,
  MTLTextureUsageShaderRead = 0x0001,
  MTLTextureUsageShaderWrite = 0x0002,
  MTLTextureUsageRenderTarget = 0x0004,
  MTLTextureUsagePixelFormatView = 0x0010,
  MTLTextureUsageShaderAtomic = 0x0020,
};

// The component that a kernel reads or samples.
typedef NS_ENUM(uint8_t, MTLTextureSwizzle) {
  MTLTextureSwizzleZero = 0,
  MTLTextureSwizzleOne = 1,
  MTLTextureSwizzleRed = 2,
  MTLTextureSwizzleGreen = 3,
  MTLTextureSwizzleBlue = 4,
  MTLTextureSwizzleAlpha = 5,
};

typedef struct {
  MTLTextureSwizzle red, green, blue, alpha;
} MTLTextureSwizzleChannels;

static inline MTLTextureSwizzleChannels MTLTextureSwizzleChannelsMake(MTLTextureSwizzle red,
                                                                      MTLTextureSwizzle green,
                                                                      MTLTextureSwizzle blue,
                                                                      MTLTextureSwizzle alpha) {
  MTLTextureSwizzleChannels channels = {red, green, blue, alpha};
  return channels;
}
#define MTLTextureSwizzleChannelsDefault                                       \
  (MTLTextureSwizzleChannelsMake(MTLTextureSwizzleRed, MTLTextureSwizzleGreen, \
                                 MTLTextureSwizzleBlue, MTLTextureSwizzleAlpha))

typedef NS_ENUM(NSInteger, MTLTextureCompressionType) {
  MTLTextureCompressionTypeLossless = 0,
  MTLTextureCompressionTypeLossy = 1,
};

MTL_EXPORT
@interface MTLTextureDescriptor : NSObject <NSCopying> {
 @private
  MTLTextureType _textureType;
  MTLPixelFormat _pixelFormat;
  NSUInteger _width, _height, _depth;
  NSUInteger _mipmapLevelCount, _sampleCount, _arrayLength;
  MTLResourceOptions _resourceOptions;
  MTLTextureUsage _usage;
  BOOL _allowGPUOptimizedContents;
  MTLTextureSwizzleChannels _swizzle;
  MTLTextureCompressionType _compressionType;
}
+ (MTLTextureDescriptor*)texture2DDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                      width:(NSUInteger)width
                                                     height:(NSUInteger)height
                                                  mipmapped:(BOOL)mipmapped;
+ (MTLTextureDescriptor*)textureCubeDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                         size:(NSUInteger)size
                                                    mipmapped:(BOOL)mipmapped;
+ (MTLTextureDescriptor*)textureBufferDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                          width:(NSUInteger)width
                                                resourceOptions:(MTLResourceOptions)resourceOptions
                                                          usage:(MTLTextureUsage)usage;
@property(readwrite, nonatomic) MTLTextureType textureType;
@property(readwrite, nonatomic) MTLPixelFormat pixelFormat;
@property(readwrite, nonatomic) NSUInteger width;
@property(readwrite, nonatomic) NSUInteger height;
@property(readwrite, nonatomic) NSUInteger depth;
@property(readwrite, nonatomic) NSUInteger mipmapLevelCount;
@property(readwrite, nonatomic) NSUInteger sampleCount;
@property(readwrite, nonatomic) NSUInteger arrayLength;
@property(readwrite, nonatomic) MTLResourceOptions resourceOptions;
@property(readwrite, nonatomic) MTLCPUCacheMode cpuCacheMode;
@property(readwrite, nonatomic) MTLStorageMode storageMode;
@property(readwrite, nonatomic) MTLHazardTrackingMode hazardTrackingMode;
// ShaderRead by default.
@property(readwrite, nonatomic) MTLTextureUsage usage;
// Taken, without effect: pixels always lie in rows.
@property(readwrite, nonatomic) BOOL allowGPUOptimizedContents;
// A texture with another than the default can be read and sampled, and not written by kernels: with
// MTLTextureUsageShaderWrite, ShaderAtomic or RenderTarget there is none.
@property(readwrite, nonatomic) MTLTextureSwizzleChannels swizzle;
// Taken, without effect: lossy compression is for render targets.
@property(readwrite, nonatomic) MTLTextureCompressionType compressionType;
@end

@protocol MTLTexture <MTLResource>
// For an argument buffer, as long as the object lives.
@property(readonly) MTLResourceID gpuResourceID;

@property(readonly) MTLTextureType textureType;
@property(readonly) MTLPixelFormat pixelFormat;
@property(readonly) NSUInteger width;
@property(readonly) NSUInteger height;
@property(readonly) NSUInteger depth;
@property(readonly) NSUInteger mipmapLevelCount;
@property(readonly) NSUInteger sampleCount;
@property(readonly) NSUInteger arrayLength;
@property(readonly) MTLTextureUsage usage;
@property(readonly, getter=isFramebufferOnly) BOOL framebufferOnly;
@property(readonly) BOOL allowGPUOptimizedContents;
@property(readonly, getter=isShareable) BOOL shareable;
@property(readonly) BOOL isSparse;  // NO
@property(readonly) MTLTextureSwizzleChannels swizzle;
@property(readonly) MTLTextureCompressionType compressionType;
// The texture that a view shows a part of.
@property(nullable, readonly) id<MTLTexture> parentTexture;
// The older name of the two: parentTexture or buffer.
@property(nullable, readonly) id<MTLResource> rootResource;
@property(readonly) NSUInteger parentRelativeLevel;
@property(readonly) NSUInteger parentRelativeSlice;
// The buffer whose bytes the pixels are.
@property(nullable, readonly) id<MTLBuffer> buffer;
@property(readonly) NSUInteger bufferOffset;
@property(readonly) NSUInteger bufferBytesPerRow;

// Between the texture and host memory, now. Not for MTLStorageModePrivate; a region outside the
// texture is refused with a line on stderr. bytesPerRow 0: rows lie back to back.
- (void)getBytes:(void*)pixelBytes
      bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
       fromRegion:(MTLRegion)region
      mipmapLevel:(NSUInteger)level
            slice:(NSUInteger)slice;
- (void)getBytes:(void*)pixelBytes
     bytesPerRow:(NSUInteger)bytesPerRow
      fromRegion:(MTLRegion)region
     mipmapLevel:(NSUInteger)level;
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
                slice:(NSUInteger)slice
            withBytes:(const void*)pixelBytes
          bytesPerRow:(NSUInteger)bytesPerRow
        bytesPerImage:(NSUInteger)bytesPerImage;
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
            withBytes:(const void*)pixelBytes
          bytesPerRow:(NSUInteger)bytesPerRow;

// The same pixels in another format of the same size; nil for one of another size.
- (nullable id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat;
- (nullable id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                             textureType:(MTLTextureType)textureType
                                                  levels:(NSRange)levelRange
                                                  slices:(NSRange)sliceRange;
// By the texture's own swizzle: `swizzle` chooses among this texture's channels.
- (nullable id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                             textureType:(MTLTextureType)textureType
                                                  levels:(NSRange)levelRange
                                                  slices:(NSRange)sliceRange
                                                 swizzle:(MTLTextureSwizzleChannels)swizzle;

@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLTEXTURE_H_
