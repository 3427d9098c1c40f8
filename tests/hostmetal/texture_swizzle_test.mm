// The kernels' view of a texture whose channels are swizzled, and levels that the device makes.
#include <cmath>
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
     "kernel void see(texture2d<float> in, device float4* out) {\n"
     "  constexpr sampler s(filter::linear);\n"
     "  out[0] = in.read(uint2(0));\n"
     "  out[1] = in.sample(s, float2(0.5f));\n"
     "  out[2] = in.gather(s, float2(0.5f), int2(0), component::w);\n"
     "}\n"
     "kernel void count(texture2d<uint> in, device uint4* out) { out[0] = in.read(uint2(0)); }\n";

id<MTLComputePipelineState> Made(NSString* name) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  return [[Device() newComputePipelineStateWithFunction:function error:nil] autorelease];
}

template <typename T>
std::vector<T> Seen(id<MTLComputePipelineState> pipeline, id<MTLTexture> texture, size_t count) {
  id<MTLBuffer> out = Buffer(count * sizeof(T));
  NSError* failed = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setTexture:texture atIndex:0];
    [encoder setBuffer:out offset:0 atIndex:0];
    [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  });
  CHECK_EQ(Message(failed), "(nil)");
  return {Contents<T>(out), Contents<T>(out) + count};
}

MTLTextureDescriptor* Described(MTLPixelFormat format, NSUInteger size, bool mipmapped) {
  return [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:format
                                                            width:size
                                                           height:size
                                                        mipmapped:mipmapped];
}

MTLTextureSwizzleChannels Order(const char* letters) {
  auto channel = [](char c) { return MTLTextureSwizzle(std::string("01rgba").find(c)); };
  return MTLTextureSwizzleChannelsMake(channel(letters[0]), channel(letters[1]),
                                       channel(letters[2]), channel(letters[3]));
}

std::string Name(MTLTextureSwizzleChannels c) {
  const char letters[] = "01rgba";
  return {letters[c.red], letters[c.green], letters[c.blue], letters[c.alpha]};
}

std::string Mipmapped(id<MTLTexture> texture) {
  id<MTLCommandBuffer> commands = [harness::Queue() commandBufferWithUnretainedReferences];
  id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
  [blit generateMipmapsForTexture:texture];
  [blit endEncoding];
  harness::Finish(commands);
  return Message(commands.error);
}

}  // namespace

TEST(texture_swizzle_chooses_what_is_read) {
  const float pixel[] = {0.25f, 0.5f, 0.75f, 0.125f};
  const struct {
    const char* order;
    float seen[4];
  } cases[] = {
      {"rgba", {0.25f, 0.5f, 0.75f, 0.125f}},
      {"bgra", {0.75f, 0.5f, 0.25f, 0.125f}},
      {"rrr1", {0.25f, 0.25f, 0.25f, 1}},
      {"01ar", {0, 1, 0.125f, 0.25f}},
  };
  id<MTLComputePipelineState> see = Made(@"see");
  for (const auto& c : cases) {
    MTLTextureDescriptor* wanted = Described(MTLPixelFormatRGBA32Float, 1, false);
    CHECK_EQ(Name(wanted.swizzle), "rgba");
    wanted.swizzle = Order(c.order);
    id<MTLTexture> texture =
        [[Device() newTextureWithDescriptor:[[wanted copy] autorelease]] autorelease];
    CHECK_EQ(Name(texture.swizzle), c.order);
    [texture replaceRegion:MTLRegionMake2D(0, 0, 1, 1)
               mipmapLevel:0
                 withBytes:pixel
               bytesPerRow:sizeof pixel];
    const std::vector<float> seen = Seen<float>(see, texture, 12);
    for (size_t i = 0; i < 4; ++i) {
      CHECK_EQ(seen[i], c.seen[i]);
      CHECK_EQ(seen[4 + i], c.seen[i]);
      CHECK_EQ(seen[8 + i], c.seen[3]);
    }
    // The host's bytes are the pixel's.
    float bytes[4];
    [texture getBytes:bytes bytesPerRow:16 fromRegion:MTLRegionMake2D(0, 0, 1, 1) mipmapLevel:0];
    CHECK_EQ(bytes[0], pixel[0]);
    // A view chooses among its texture's channels.
    id<MTLTexture> view = [[texture newTextureViewWithPixelFormat:MTLPixelFormatRGBA32Float
                                                      textureType:MTLTextureType2D
                                                           levels:NSMakeRange(0, 1)
                                                           slices:NSMakeRange(0, 1)
                                                          swizzle:Order("ab1r")] autorelease];
    const std::vector<float> chosen = Seen<float>(see, view, 12);
    const float expected[] = {c.seen[3], c.seen[2], 1, c.seen[0]};
    for (size_t i = 0; i < 4; ++i) CHECK_EQ(chosen[i], expected[i]);
    CHECK(view.rootResource == texture);
  }
}

TEST(texture_swizzle_of_integers) {
  MTLTextureDescriptor* wanted = Described(MTLPixelFormatRG8Uint, 1, false);
  wanted.swizzle = Order("g1ra");
  id<MTLTexture> texture = [[Device() newTextureWithDescriptor:wanted] autorelease];
  const uint8_t pixel[] = {7, 200};
  [texture replaceRegion:MTLRegionMake2D(0, 0, 1, 1) mipmapLevel:0 withBytes:pixel bytesPerRow:2];
  const std::vector<uint32_t> seen = Seen<uint32_t>(Made(@"count"), texture, 4);
  const uint32_t expected[] = {200, 1, 7, 1};
  for (size_t i = 0; i < 4; ++i) CHECK_EQ(seen[i], expected[i]);
}

TEST(texture_swizzle_that_cannot_be_is_nil) {
  MTLTextureDescriptor* wanted = Described(MTLPixelFormatRGBA8Unorm, 4, false);
  wanted.swizzle = Order("bgra");
  wanted.usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  CHECK([Device() newTextureWithDescriptor:wanted] == nil);
  wanted.usage = MTLTextureUsageShaderRead;
  wanted.swizzle = MTLTextureSwizzleChannelsMake(MTLTextureSwizzle(6), MTLTextureSwizzleRed,
                                                 MTLTextureSwizzleRed, MTLTextureSwizzleRed);
  CHECK([Device() newTextureWithDescriptor:wanted] == nil);
  wanted.swizzle = MTLTextureSwizzleChannelsDefault;
  wanted.storageMode = MTLStorageModeMemoryless;
  CHECK([Device() newTextureWithDescriptor:wanted] == nil);
  CHECK([Device() newBufferWithLength:64 options:MTLResourceStorageModeMemoryless] == nil);
}

TEST(mipmaps_are_means_of_the_level_before) {
  MTLTextureDescriptor* wanted = Described(MTLPixelFormatR32Float, 8, true);
  wanted.textureType = MTLTextureType2DArray;
  wanted.arrayLength = 2;
  id<MTLTexture> texture = [[Device() newTextureWithDescriptor:wanted] autorelease];
  CHECK_EQ(texture.mipmapLevelCount, 4u);
  std::vector<float> level[2];
  for (size_t slice = 0; slice < 2; ++slice) {
    for (size_t i = 0; i < 64; ++i) level[slice].push_back(float((i * 7 + slice * 3) % 16));
    [texture replaceRegion:MTLRegionMake2D(0, 0, 8, 8)
               mipmapLevel:0
                     slice:slice
                 withBytes:level[slice].data()
               bytesPerRow:32
             bytesPerImage:256];
  }
  CHECK_EQ(Mipmapped(texture), "(nil)");
  for (size_t slice = 0; slice < 2; ++slice) {
    std::vector<float> before = level[slice];
    for (size_t number = 1, n = 4; n; ++number, n /= 2) {
      std::vector<float> expected(n * n), got(n * n);
      for (size_t i = 0; i < n * n; ++i) {
        const float* from = &before[i / n * 4 * n + i % n * 2];
        expected[i] = (from[0] + from[1] + from[2 * n] + from[2 * n + 1]) / 4;
      }
      [texture getBytes:got.data()
            bytesPerRow:n * 4
          bytesPerImage:n * n * 4
             fromRegion:MTLRegionMake2D(0, 0, n, n)
            mipmapLevel:number
                  slice:slice];
      CHECK(got == expected);
      before = expected;
    }
  }
}

TEST(mipmaps_of_volumes_and_of_sizes_that_are_not_even) {
  MTLTextureDescriptor* wanted = Described(MTLPixelFormatR32Float, 2, true);
  wanted.textureType = MTLTextureType3D;
  wanted.depth = 2;
  id<MTLTexture> volume = [[Device() newTextureWithDescriptor:wanted] autorelease];
  const float pixels[] = {1, 2, 3, 4, 5, 6, 7, 9};
  [volume replaceRegion:MTLRegionMake3D(0, 0, 0, 2, 2, 2)
            mipmapLevel:0
                  slice:0
              withBytes:pixels
            bytesPerRow:8
          bytesPerImage:16];
  CHECK_EQ(Mipmapped(volume), "(nil)");
  float mean = 0;
  [volume getBytes:&mean bytesPerRow:4 fromRegion:MTLRegionMake3D(0, 0, 0, 1, 1, 1) mipmapLevel:1];
  CHECK_EQ(mean, 37.0f / 8);

  // Swizzled, too: levels are made of the pixels themselves.
  MTLTextureDescriptor* odd = Described(MTLPixelFormatRG8Unorm, 5, true);
  odd.swizzle = Order("grba");
  id<MTLTexture> texture = [[Device() newTextureWithDescriptor:odd] autorelease];
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 25; ++i) bytes.insert(bytes.end(), {100, 200});
  [texture replaceRegion:MTLRegionMake2D(0, 0, 5, 5)
             mipmapLevel:0
               withBytes:bytes.data()
             bytesPerRow:10];
  CHECK_EQ(Mipmapped(texture), "(nil)");
  uint8_t small[8];
  [texture getBytes:small bytesPerRow:4 fromRegion:MTLRegionMake2D(0, 0, 2, 2) mipmapLevel:1];
  for (int i = 0; i < 4; ++i) {
    CHECK_EQ(int(small[2 * i]), 100);
    CHECK_EQ(int(small[2 * i + 1]), 200);
  }
}

TEST(mipmaps_that_cannot_be_made_say_why) {
  id<MTLTexture> flat =
      [[Device() newTextureWithDescriptor:Described(MTLPixelFormatR8Unorm, 4, false)] autorelease];
  CHECK_CONTAINS(Mipmapped(flat), "[generateMipmapsForTexture] the texture has one level");
  id<MTLTexture> integers =
      [[Device() newTextureWithDescriptor:Described(MTLPixelFormatR8Uint, 4, true)] autorelease];
  CHECK_CONTAINS(Mipmapped(integers), "MTLPixelFormat 13 holds integers");
  CHECK_CONTAINS(Mipmapped(nil), "the texture is nil or not of this device");
}
