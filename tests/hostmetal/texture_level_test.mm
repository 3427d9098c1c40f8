// Levels and slices of textures: samplers clamped where they are bound, copies of several at once.
#include <string>
#include <vector>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;

namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "kernel void look(texture2d<float> in [[texture(3)]], sampler s [[sampler(2)]],\n"
     "                 sampler other [[sampler(3)]], device float* out [[buffer(0)]],\n"
     "                 constant float& wanted [[buffer(1)]]) {\n"
     "  out[0] = in.sample(s, float2(0.5f), level(wanted)).x;\n"
     "  out[1] = in.sample(other, float2(0.5f), level(wanted)).x;\n"
     "}\n";

id<MTLTexture> Texture(MTLTextureType type, NSUInteger width, NSUInteger height, NSUInteger slices,
                       NSUInteger levels) {
  MTLTextureDescriptor* wanted = [[[MTLTextureDescriptor alloc] init] autorelease];
  wanted.textureType = type;
  wanted.pixelFormat = MTLPixelFormatR8Unorm;
  wanted.width = width;
  wanted.height = height;
  wanted.arrayLength = slices;
  wanted.mipmapLevelCount = levels;
  return [[Device() newTextureWithDescriptor:wanted] autorelease];
}

void Set(id<MTLTexture> texture, NSUInteger slice, NSUInteger level, uint8_t value) {
  const NSUInteger width = texture.width >> level, height = texture.height >> level;
  const std::vector<uint8_t> pixels(width * height, value);
  [texture replaceRegion:MTLRegionMake2D(0, 0, width, height)
             mipmapLevel:level
                   slice:slice
               withBytes:pixels.data()
             bytesPerRow:width
           bytesPerImage:0];
}
int Get(id<MTLTexture> texture, NSUInteger slice, NSUInteger level) {
  uint8_t pixel = 0;
  [texture getBytes:&pixel
        bytesPerRow:1
      bytesPerImage:1
         fromRegion:MTLRegionMake2D((texture.width >> level) - 1, 0, 1, 1)
        mipmapLevel:level
              slice:slice];
  return pixel;
}

}  // namespace

TEST(samplers_are_clamped_where_they_are_bound) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> look = [[library newFunctionWithName:@"look"] autorelease];
  id<MTLComputePipelineState> pipeline =
      [[Device() newComputePipelineStateWithFunction:look error:nil] autorelease];
  id<MTLTexture> texture = Texture(MTLTextureType2D, 8, 8, 1, 4);
  for (NSUInteger level = 0; level < 4; ++level) Set(texture, 0, level, uint8_t(51 * level));
  MTLSamplerDescriptor* wanted = [[[MTLSamplerDescriptor alloc] init] autorelease];
  wanted.mipFilter = MTLSamplerMipFilterNearest;
  wanted.lodMinClamp = 2;
  id<MTLSamplerState> sampler = [[Device() newSamplerStateWithDescriptor:wanted] autorelease];
  const struct {
    float low, high, asked;
    int plain, clamped;
  } cases[] = {{0, 3, 0, 2, 0}, {1, 3, 0, 2, 1}, {0, 1, 3, 3, 1}, {3, 3, 2, 2, 3}};
  for (bool plural : {false, true}) {
    for (const auto& c : cases) {
      id<MTLBuffer> out = Buffer(8);
      NSError* failed = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
        [encoder setComputePipelineState:pipeline];
        [encoder setTexture:texture atIndex:3];
        [encoder setSamplerState:sampler atIndex:2];
        if (plural) {
          [encoder setSamplerStates:&sampler
                       lodMinClamps:&c.low
                       lodMaxClamps:&c.high
                          withRange:NSMakeRange(3, 1)];
        } else {
          [encoder setSamplerState:sampler lodMinClamp:c.low lodMaxClamp:c.high atIndex:3];
        }
        [encoder setBuffer:out offset:0 atIndex:0];
        [encoder setBytes:&c.asked length:4 atIndex:1];
        [encoder setStageInRegion:MTLRegionMake1D(0, 1)];
        [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
      });
      CHECK(failed == nil);
      CHECK_EQ(int(Contents<float>(out)[0] * 5 + 0.5f), c.plain);
      CHECK_EQ(int(Contents<float>(out)[1] * 5 + 0.5f), c.clamped);
    }
  }
  NSError* failed = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setSamplerState:sampler lodMinClamp:0 lodMaxClamp:1 atIndex:16];
  });
  CHECK_CONTAINS(Message(failed), "[setSamplerState] index 16; the highest is 15");
  failed = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setStageInRegionWithIndirectBuffer:Buffer(24) indirectBufferOffset:4];
  });
  CHECK_CONTAINS(Message(failed), "bytes 4 to 28 of a buffer of 24 bytes");
}

TEST(slices_and_levels_are_copied_together) {
  id<MTLTexture> from = Texture(MTLTextureType2DArray, 16, 8, 4, 4);
  id<MTLTexture> to = Texture(MTLTextureType2DArray, 8, 4, 3, 3);
  for (NSUInteger slice = 0; slice < 4; ++slice) {
    for (NSUInteger level = 0; level < 4; ++level) {
      Set(from, slice, level, uint8_t(10 * slice + level + 1));
    }
  }
  auto copy = [&](NSUInteger slice, NSUInteger level, NSUInteger toSlice, NSUInteger toLevel,
                  NSUInteger slices, NSUInteger levels) {
    id<MTLCommandBuffer> commands = harness::Queue().commandBuffer;
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit copyFromTexture:from
              sourceSlice:slice
              sourceLevel:level
                toTexture:to
         destinationSlice:toSlice
         destinationLevel:toLevel
               sliceCount:slices
               levelCount:levels];
    [blit endEncoding];
    harness::Finish(commands);
    return Message(commands.error);
  };
  CHECK_EQ(copy(2, 1, 1, 0, 2, 2), "(nil)");
  for (NSUInteger slice = 0; slice < 3; ++slice) {
    for (NSUInteger level = 0; level < 3; ++level) {
      const bool copied = slice >= 1 && level < 2;
      CHECK_EQ(Get(to, slice, level), copied ? int(10 * (slice + 1) + level + 2) : 0);
    }
  }
  CHECK_CONTAINS(copy(0, 0, 0, 0, 1, 1),
                 "level 0 is 16 x 8 x 1 and level 0 of the destination 8 x 4 x 1");
  CHECK_CONTAINS(copy(3, 1, 0, 0, 2, 1), "slice 4 of a texture with 4 levels and 4 slices");
  CHECK_CONTAINS(copy(0, 1, 2, 0, 2, 1), "slice 3 of a texture with 3 levels and 3 slices");
  CHECK_CONTAINS(copy(0, 1, 0, 0, 1, NSUIntegerMax), "levels of 1 slices of a texture with 4");
}
