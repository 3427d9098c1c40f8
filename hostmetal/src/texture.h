// MTLTexture and MTLSamplerState.
#ifndef HOSTMETAL_SRC_TEXTURE_H_
#define HOSTMETAL_SRC_TEXTURE_H_

#import <Metal/Metal.h>

#include <string>

#include "hostmetal/src/buffer.h"
#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"

namespace hostmetal {

// For "texture2d<float, access::read>": the type, and the component's MSL name.
MTLTextureType TextureType(const char* type_name);
std::string TextureComponent(const char* type_name);
MTLSize SizeAt(const metallib_texture& texture, NSUInteger level);
// The size of a texture of that kind; 0 for one that no device has.
NSUInteger TextureBytes(MTLTextureDescriptor* descriptor);

}  // namespace hostmetal

// A box of pixels in a texture, and how the bytes beside it lie.
struct HMPixels {
  char* texture;
  size_t texture_row, texture_image;
  size_t row_bytes, rows, images;
  size_t row_stride, image_stride;
};

@interface HMTexture : HMPlaced <MTLTexture> {
 @public
  HMDevice* _device;
  metallib_texture _layout;  // the kernels' view; never changed
  MTLTextureType _textureType;
  MTLPixelFormat _pixelFormat;
  MTLTextureUsage _usage;
  MTLResourceOptions _options;
  HMTexture* _parent;
  NSUInteger _parentLevel, _parentSlice;
  BOOL _overBuffer;
  NSUInteger _bufferOffset;
}
// nil where the device has no such texture, or no memory.
+ (HMTexture*)newOn:(HMDevice*)device descriptor:(MTLTextureDescriptor*)descriptor;
// Its pixels are all that the memory is for.
+ (HMTexture*)newIn:(HMBuffer*)memory descriptor:(MTLTextureDescriptor*)descriptor;
+ (HMTexture*)newOver:(HMBuffer*)buffer
           descriptor:(MTLTextureDescriptor*)descriptor
               offset:(NSUInteger)offset
          bytesPerRow:(NSUInteger)bytesPerRow;
// A level as the pixels are, whatever the texture's swizzle and usage say.
- (HMTexture*)newPlainViewOfType:(MTLTextureType)type level:(NSUInteger)level;
// NO, and in `what` the reason, where the region is not in the texture.
- (BOOL)locate:(MTLRegion)region
          level:(NSUInteger)level
          slice:(NSUInteger)slice
      rowStride:(NSUInteger)rowStride
    imageStride:(NSUInteger)imageStride
         pixels:(HMPixels*)pixels
           what:(std::string*)what;
@end

@interface HMSamplerState : HMObject <MTLSamplerState> {
 @public
  HMDevice* _device;
  NSString* _samplerLabel;
  metallib_sampler _sampler;
}
- (id)initWithDevice:(HMDevice*)device descriptor:(MTLSamplerDescriptor*)descriptor;
@end

#endif  // HOSTMETAL_SRC_TEXTURE_H_
