// Textures, samplers, and the copies between them and buffers.
#include <math.h>
#include <string.h>

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
     "kernel void invert(texture2d<float, access::read> in [[texture(0)]],\n"
     "                   texture2d<float, access::write> out [[texture(1)]],\n"
     "                   uint2 at [[thread_position_in_grid]]) {\n"
     "  if (at.x < out.get_width() && at.y < out.get_height())\n"
     "    out.write(float4(1 - in.read(at).rgb, 1), at);\n"
     "}\n"
     "kernel void look(texture2d<float> in [[texture(3)]], sampler s [[sampler(2)]],\n"
     "                 device float4* out [[buffer(0)]], constant float2* at [[buffer(1)]],\n"
     "                 uint i [[thread_position_in_grid]]) {\n"
     "  out[i] = in.sample(s, at[i]);\n"
     "}\n"
     "kernel void fetch_float(texture2d<float, access::read> in, device float4* out) {\n"
     "  out[0] = in.read(uint2(0));\n"
     "}\n"
     "kernel void fetch_uint(texture2d<uint, access::read> in, device uint4* out) {\n"
     "  out[0] = in.read(uint2(0));\n"
     "}\n"
     "kernel void fetch_int(texture2d<int, access::read> in, device int4* out) {\n"
     "  out[0] = in.read(uint2(0));\n"
     "}\n"
     "kernel void count(texture2d<uint, access::read_write> t [[texture(0)]],\n"
     "                  uint2 at [[thread_position_in_grid]]) {\n"
     "  t.write(t.read(at) + 1, at);\n"
     "}\n"
     "kernel void around(texturecube_array<float> all [[texture(0)]],\n"
     "                   texturecube<float> one [[texture(1)]],\n"
     "                   array<depth2d<float>, 2> depths [[texture(2)]],\n"
     "                   sampler s [[sampler(0)]], device float* out [[buffer(0)]]) {\n"
     "  out[0] = one.sample(s, float3(0, -1, 0)).x;\n"
     "  out[1] = all.sample(s, float3(0, 0, -1), 1).x;\n"
     "  out[2] = all.get_array_size();\n"
     "  out[3] = depths[1].sample(s, float2(0.5f));\n"
     "  out[4] = depths[0].sample_compare(s, float2(0.5f), 0.5f);\n"
     "  out[5] = depths[1].sample_compare(s, float2(0.5f), 0.5f);\n"
     "}\n";

id<MTLComputePipelineState> Pipeline(NSString* name) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  if (!library) CHECK_EQ(Message(error), "");
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  CHECK(function != nil);
  return [[Device() newComputePipelineStateWithFunction:function error:nil] autorelease];
}

id<MTLTexture> Texture(MTLPixelFormat format, NSUInteger width, NSUInteger height,
                       MTLTextureUsage usage = MTLTextureUsageShaderRead |
                                               MTLTextureUsageShaderWrite) {
  MTLTextureDescriptor* d = [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:format
                                                                               width:width
                                                                              height:height
                                                                           mipmapped:NO];
  d.usage = usage;
  return [[Device() newTextureWithDescriptor:d] autorelease];
}

// Encodes `body`, runs it, and returns the error's message.
template <typename Body>
std::string Run(Body body) {
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  body(commands);
  [commands commit];
  [commands waitUntilCompleted];
  return commands.error ? Message(commands.error) : "";
}

std::string Invert(id<MTLTexture> in, id<MTLTexture> out) {
  return Run([&](id<MTLCommandBuffer> commands) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline(@"invert")];
    [encoder setTexture:in atIndex:0];
    [encoder setTexture:out atIndex:1];
    [encoder dispatchThreadgroups:MTLSizeMake(2, 2, 1) threadsPerThreadgroup:MTLSizeMake(8, 4, 1)];
    [encoder endEncoding];
  });
}

}  // namespace

TEST(texture_kernel_reads_and_writes_pixels) {
  constexpr int kWidth = 11, kHeight = 7;
  id<MTLTexture> in = Texture(MTLPixelFormatRGBA8Unorm, kWidth, kHeight);
  id<MTLTexture> out = Texture(MTLPixelFormatBGRA8Unorm, kWidth, kHeight);
  std::vector<uint8_t> pixels(kWidth * kHeight * 4), result(pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = uint8_t(i * 37 + 5);
  MTLRegion all = MTLRegionMake2D(0, 0, kWidth, kHeight);
  [in replaceRegion:all mipmapLevel:0 withBytes:pixels.data() bytesPerRow:kWidth * 4];
  CHECK_EQ(Invert(in, out), "");
  [out getBytes:result.data() bytesPerRow:kWidth * 4 fromRegion:all mipmapLevel:0];
  for (size_t i = 0; i < pixels.size(); i += 4) {
    CHECK_EQ(int(result[i + 2]), 255 - pixels[i]);
    CHECK_EQ(int(result[i + 1]), 255 - pixels[i + 1]);
    CHECK_EQ(int(result[i]), 255 - pixels[i + 2]);
    CHECK_EQ(int(result[i + 3]), 255);
  }
}

TEST(texture_formats_hold_what_their_names_say) {
  // Component k of the pixel, and the value that a shader reads then.
  enum Kind { kUnorm8, kSrgb8, kSnorm8, kUnorm16, kSnorm16, kFloat16, kFloat32, kUint, kSint };
  struct Case {
    MTLPixelFormat format;
    Kind kind;
    int bytes;        // of a component
    const char* has;  // in this order
  };
  const Case cases[] = {
      {MTLPixelFormatA8Unorm, kUnorm8, 1, "a"},
      {MTLPixelFormatR8Unorm, kUnorm8, 1, "r"},
      {MTLPixelFormatR8Unorm_sRGB, kSrgb8, 1, "r"},
      {MTLPixelFormatR8Snorm, kSnorm8, 1, "r"},
      {MTLPixelFormatR8Uint, kUint, 1, "r"},
      {MTLPixelFormatR8Sint, kSint, 1, "r"},
      {MTLPixelFormatR16Unorm, kUnorm16, 2, "r"},
      {MTLPixelFormatR16Snorm, kSnorm16, 2, "r"},
      {MTLPixelFormatR16Uint, kUint, 2, "r"},
      {MTLPixelFormatR16Sint, kSint, 2, "r"},
      {MTLPixelFormatR16Float, kFloat16, 2, "r"},
      {MTLPixelFormatRG8Unorm, kUnorm8, 1, "rg"},
      {MTLPixelFormatRG8Unorm_sRGB, kSrgb8, 1, "rg"},
      {MTLPixelFormatRG8Snorm, kSnorm8, 1, "rg"},
      {MTLPixelFormatRG8Uint, kUint, 1, "rg"},
      {MTLPixelFormatRG8Sint, kSint, 1, "rg"},
      {MTLPixelFormatR32Uint, kUint, 4, "r"},
      {MTLPixelFormatR32Sint, kSint, 4, "r"},
      {MTLPixelFormatR32Float, kFloat32, 4, "r"},
      {MTLPixelFormatRG16Unorm, kUnorm16, 2, "rg"},
      {MTLPixelFormatRG16Snorm, kSnorm16, 2, "rg"},
      {MTLPixelFormatRG16Uint, kUint, 2, "rg"},
      {MTLPixelFormatRG16Sint, kSint, 2, "rg"},
      {MTLPixelFormatRG16Float, kFloat16, 2, "rg"},
      {MTLPixelFormatRGBA8Unorm, kUnorm8, 1, "rgba"},
      {MTLPixelFormatRGBA8Unorm_sRGB, kSrgb8, 1, "rgba"},
      {MTLPixelFormatRGBA8Snorm, kSnorm8, 1, "rgba"},
      {MTLPixelFormatRGBA8Uint, kUint, 1, "rgba"},
      {MTLPixelFormatRGBA8Sint, kSint, 1, "rgba"},
      {MTLPixelFormatBGRA8Unorm, kUnorm8, 1, "bgra"},
      {MTLPixelFormatBGRA8Unorm_sRGB, kSrgb8, 1, "bgra"},
      {MTLPixelFormatRG32Uint, kUint, 4, "rg"},
      {MTLPixelFormatRG32Sint, kSint, 4, "rg"},
      {MTLPixelFormatRG32Float, kFloat32, 4, "rg"},
      {MTLPixelFormatRGBA16Unorm, kUnorm16, 2, "rgba"},
      {MTLPixelFormatRGBA16Snorm, kSnorm16, 2, "rgba"},
      {MTLPixelFormatRGBA16Uint, kUint, 2, "rgba"},
      {MTLPixelFormatRGBA16Sint, kSint, 2, "rgba"},
      {MTLPixelFormatRGBA16Float, kFloat16, 2, "rgba"},
      {MTLPixelFormatRGBA32Uint, kUint, 4, "rgba"},
      {MTLPixelFormatRGBA32Sint, kSint, 4, "rgba"},
      {MTLPixelFormatRGBA32Float, kFloat32, 4, "rgba"},
  };
  const uint16_t halves[4] = {0x3800, 0x3c00, 0x3e00, 0x4000};  // 0.5, 1, 1.5, 2
  id<MTLComputePipelineState> fetch_float = Pipeline(@"fetch_float"),
                              fetch_uint = Pipeline(@"fetch_uint"),
                              fetch_int = Pipeline(@"fetch_int");
  for (const Case& c : cases) {
    uint8_t pixel[16] = {};
    double expected[4] = {0, 0, 0, 1};
    for (int k = 0; c.has[k]; ++k) {
      static const std::string order = "rgba";
      double& value = expected[order.find(c.has[k])];
      int32_t raw = 0;
      switch (c.kind) {
        case kUnorm8:
        case kSrgb8:
          raw = 51 * (k + 1);
          value = 0.2 * (k + 1);
          if (c.kind == kSrgb8 && c.has[k] != 'a') value = pow((value + 0.055) / 1.055, 2.4);
          break;
        case kSnorm8:
          raw = -25 * (k + 1);
          value = raw / 127.0;
          break;
        case kUnorm16:
          raw = 13107 * (k + 1);
          value = 0.2 * (k + 1);
          break;
        case kSnorm16:
          raw = -5000 * (k + 1);
          value = raw / 32767.0;
          break;
        case kFloat16:
          raw = halves[k];
          value = 0.5 * (k + 1);
          break;
        case kFloat32: {
          const float number = 0.25f * float(k + 1);
          memcpy(&raw, &number, 4);
          value = number;
          break;
        }
        case kUint:
          raw = 50 * (k + 1);
          value = raw;
          break;
        case kSint:
          raw = -7 * (k + 1);
          value = raw;
          break;
      }
      memcpy(pixel + k * c.bytes, &raw, c.bytes);
    }
    id<MTLTexture> texture = Texture(c.format, 1, 1);
    CHECK(texture != nil);
    [texture replaceRegion:MTLRegionMake2D(0, 0, 1, 1)
               mipmapLevel:0
                 withBytes:pixel
               bytesPerRow:16];
    id<MTLBuffer> out = Buffer(16);
    CHECK_EQ(Run([&](id<MTLCommandBuffer> commands) {
               id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
               [encoder setComputePipelineState:c.kind == kUint   ? fetch_uint
                                                : c.kind == kSint ? fetch_int
                                                                  : fetch_float];
               [encoder setTexture:texture atIndex:0];
               [encoder setBuffer:out offset:0 atIndex:0];
               [encoder dispatchThreads:MTLSizeMake(1, 1, 1)
                   threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
               [encoder endEncoding];
             }),
             "");
    for (int k = 0; k < 4; ++k) {
      const double seen = c.kind == kUint   ? Contents<uint32_t>(out)[k]
                          : c.kind == kSint ? Contents<int32_t>(out)[k]
                                            : Contents<float>(out)[k];
      if (fabs(seen - expected[k]) > 1e-5) {
        CHECK_EQ("MTLPixelFormat " + std::to_string(int(c.format)) + ", component " +
                     std::to_string(k) + ": " + std::to_string(seen),
                 std::to_string(expected[k]));
      }
    }
  }
}

TEST(texture_sampler_state_says_how) {
  id<MTLTexture> texture = Texture(MTLPixelFormatR32Float, 4, 1);
  const float row[4] = {0, 10, 20, 30};
  [texture replaceRegion:MTLRegionMake2D(0, 0, 4, 1) mipmapLevel:0 withBytes:row bytesPerRow:16];
  struct Case {
    MTLSamplerMinMagFilter filter;
    MTLSamplerAddressMode address;
    BOOL normalized;
    float x, expected;
  };
  const Case cases[] = {
      {MTLSamplerMinMagFilterNearest, MTLSamplerAddressModeClampToEdge, YES, 0.30f, 10},
      {MTLSamplerMinMagFilterLinear, MTLSamplerAddressModeClampToEdge, YES, 0.5f, 15},
      {MTLSamplerMinMagFilterLinear, MTLSamplerAddressModeClampToEdge, YES, -3.0f, 0},
      {MTLSamplerMinMagFilterLinear, MTLSamplerAddressModeRepeat, YES, 0.0f, 15},
      {MTLSamplerMinMagFilterNearest, MTLSamplerAddressModeRepeat, YES, 1.3f, 10},
      {MTLSamplerMinMagFilterNearest, MTLSamplerAddressModeMirrorRepeat, YES, 1.2f, 30},
      {MTLSamplerMinMagFilterNearest, MTLSamplerAddressModeClampToZero, YES, 1.2f, 0},
      {MTLSamplerMinMagFilterNearest, MTLSamplerAddressModeClampToEdge, NO, 2.5f, 20},
      {MTLSamplerMinMagFilterLinear, MTLSamplerAddressModeClampToEdge, NO, 3.0f, 25},
  };
  id<MTLComputePipelineState> look = Pipeline(@"look");
  for (const Case& c : cases) {
    MTLSamplerDescriptor* d = [[[MTLSamplerDescriptor alloc] init] autorelease];
    d.minFilter = d.magFilter = c.filter;
    d.sAddressMode = c.address;
    d.normalizedCoordinates = c.normalized;
    id<MTLSamplerState> sampler = [[Device() newSamplerStateWithDescriptor:d] autorelease];
    const float at[2] = {c.x, 0};
    id<MTLBuffer> out = Buffer(16);
    std::string said = Run([&](id<MTLCommandBuffer> commands) {
      id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
      [encoder setComputePipelineState:look];
      [encoder setTexture:texture atIndex:3];
      [encoder setSamplerState:sampler atIndex:2];
      [encoder setBuffer:out offset:0 atIndex:0];
      [encoder setBytes:at length:sizeof at atIndex:1];
      [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
      [encoder endEncoding];
    });
    CHECK_EQ(said, "");
    CHECK(fabsf(Contents<float>(out)[0] - c.expected) < 1e-4f);
  }
}

TEST(texture_copies_between_buffers_and_textures) {
  // 5 x 4 pixels of 4 bytes in rows of 32 bytes, into the middle of a private texture, and back.
  id<MTLBuffer> source = Buffer(32 * 4), target = Buffer(32 * 4);
  for (int i = 0; i < 128; ++i) Contents<uint8_t>(source)[i] = uint8_t(i + 1);
  MTLTextureDescriptor* d =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Uint
                                                         width:9
                                                        height:9
                                                     mipmapped:NO];
  d.storageMode = MTLStorageModePrivate;
  id<MTLTexture> first = [[Device() newTextureWithDescriptor:d] autorelease];
  id<MTLTexture> second = [[Device() newTextureWithDescriptor:d] autorelease];
  std::string said = Run([&](id<MTLCommandBuffer> commands) {
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit copyFromBuffer:source
               sourceOffset:0
          sourceBytesPerRow:32
        sourceBytesPerImage:0
                 sourceSize:MTLSizeMake(5, 4, 1)
                  toTexture:first
           destinationSlice:0
           destinationLevel:0
          destinationOrigin:MTLOriginMake(3, 2, 0)];
    [blit copyFromTexture:first toTexture:second];
    [blit copyFromTexture:second
                     sourceSlice:0
                     sourceLevel:0
                    sourceOrigin:MTLOriginMake(2, 2, 0)
                      sourceSize:MTLSizeMake(6, 4, 1)
                        toBuffer:target
               destinationOffset:0
          destinationBytesPerRow:32
        destinationBytesPerImage:0];
    [blit endEncoding];
  });
  CHECK_EQ(said, "");
  for (int y = 0; y < 4; ++y) {
    CHECK_EQ(Contents<uint32_t>(target)[y * 8], 0u);
    for (int x = 0; x < 5; ++x) {
      CHECK_EQ(Contents<uint32_t>(target)[y * 8 + 1 + x], Contents<uint32_t>(source)[y * 8 + x]);
    }
  }
}

TEST(texture_over_a_buffer_shares_its_bytes) {
  id<MTLBuffer> buffer = Buffer(16 + 3 * 32);
  MTLTextureDescriptor* d =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Uint
                                                         width:5
                                                        height:3
                                                     mipmapped:NO];
  d.usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  id<MTLTexture> texture = [[buffer newTextureWithDescriptor:d offset:16
                                                 bytesPerRow:32] autorelease];
  CHECK(texture != nil && texture.buffer == buffer && texture.bufferOffset == 16);
  CHECK([buffer newTextureWithDescriptor:d offset:8 bytesPerRow:32] == nil);
  CHECK([buffer newTextureWithDescriptor:d offset:16 bytesPerRow:16] == nil);
  CHECK([buffer newTextureWithDescriptor:d offset:48 bytesPerRow:32] == nil);
  Contents<uint32_t>(buffer)[4 + 8 + 2] = 41;
  std::string said = Run([&](id<MTLCommandBuffer> commands) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline(@"count")];
    [encoder setTexture:texture atIndex:0];
    // Threads outside read zero, and their writes are dropped.
    [encoder dispatchThreads:MTLSizeMake(8, 8, 1) threadsPerThreadgroup:MTLSizeMake(8, 8, 1)];
    [encoder endEncoding];
  });
  CHECK_EQ(said, "");
  CHECK_EQ(Contents<uint32_t>(buffer)[4 + 8 + 2], 42u);
  CHECK_EQ(Contents<uint32_t>(buffer)[4 + 8 + 4], 1u);
  CHECK_EQ(Contents<uint32_t>(buffer)[4 + 8 + 5], 0u);
}

TEST(texture_views_show_levels_and_slices) {
  MTLTextureDescriptor* d = [[[MTLTextureDescriptor alloc] init] autorelease];
  d.textureType = MTLTextureType2DArray;
  d.pixelFormat = MTLPixelFormatRGBA8Unorm;
  d.width = 8, d.height = 4, d.arrayLength = 3, d.mipmapLevelCount = 3;
  d.usage = MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite;
  id<MTLTexture> texture = [[Device() newTextureWithDescriptor:d] autorelease];
  const uint32_t pixel = 0x01020304;
  [texture replaceRegion:MTLRegionMake2D(1, 0, 1, 1)
             mipmapLevel:2
                   slice:1
               withBytes:&pixel
             bytesPerRow:4
           bytesPerImage:0];
  id<MTLTexture> view = [[texture newTextureViewWithPixelFormat:MTLPixelFormatR32Uint
                                                    textureType:MTLTextureType2D
                                                         levels:NSMakeRange(2, 1)
                                                         slices:NSMakeRange(1, 1)] autorelease];
  CHECK(view != nil && view.parentTexture == texture);
  CHECK(view.width == 2 && view.height == 1 && view.parentRelativeLevel == 2);
  uint32_t seen = 0;
  [view getBytes:&seen bytesPerRow:4 fromRegion:MTLRegionMake2D(1, 0, 1, 1) mipmapLevel:0];
  CHECK_EQ(seen, pixel);
  CHECK([texture newTextureViewWithPixelFormat:MTLPixelFormatR8Unorm] == nil);
  // A shader sees the view's format: two threads, each its own pixel of one component.
  CHECK_EQ(Run([&](id<MTLCommandBuffer> commands) {
             id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
             [encoder setComputePipelineState:Pipeline(@"count")];
             [encoder setTexture:view atIndex:0];
             [encoder dispatchThreads:MTLSizeMake(2, 1, 1)
                 threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
             [encoder endEncoding];
           }),
           "");
  uint32_t row[2] = {};
  [view getBytes:row bytesPerRow:8 fromRegion:MTLRegionMake2D(0, 0, 2, 1) mipmapLevel:0];
  CHECK_EQ(row[0], 1u);
  CHECK_EQ(row[1], pixel + 1);
}

TEST(texture_views_beyond_the_texture_are_nil) {
  MTLTextureDescriptor* d = [[[MTLTextureDescriptor alloc] init] autorelease];
  d.textureType = MTLTextureType2DArray;
  d.pixelFormat = MTLPixelFormatRGBA8Unorm;
  d.width = 8, d.height = 4, d.arrayLength = 3, d.mipmapLevelCount = 3;
  id<MTLTexture> texture = [[Device() newTextureWithDescriptor:d] autorelease];
  struct Case {
    MTLPixelFormat format;
    MTLTextureType type;
    NSRange levels, slices;
    bool made;
  };
  const MTLPixelFormat same = MTLPixelFormatRGBA8Unorm;
  const Case cases[] = {
      {same, MTLTextureType2DArray, NSMakeRange(0, 3), NSMakeRange(0, 3), true},
      {same, MTLTextureType2DArray, NSMakeRange(2, 1), NSMakeRange(1, 2), true},
      {same, MTLTextureType2D, NSMakeRange(1, 2), NSMakeRange(2, 1), true},
      {same, MTLTextureType2DArray, NSMakeRange(2, 2), NSMakeRange(0, 3), false},
      {same, MTLTextureType2DArray, NSMakeRange(0, 3), NSMakeRange(2, 2), false},
      {same, MTLTextureType2D, NSMakeRange(0, 3), NSMakeRange(3, 1), false},
      {same, MTLTextureType2D, NSMakeRange(0, 3), NSMakeRange(0, 2), false},
      {same, MTLTextureType2DArray, NSMakeRange(0, 0), NSMakeRange(0, 3), false},
      {same, MTLTextureType2DArray, NSMakeRange(0, 3), NSMakeRange(0, 0), false},
      {same, MTLTextureType3D, NSMakeRange(0, 3), NSMakeRange(0, 1), false},
      {same, MTLTextureType1D, NSMakeRange(0, 3), NSMakeRange(0, 1), false},
      {MTLPixelFormatRG16Uint, MTLTextureType2D, NSMakeRange(0, 1), NSMakeRange(0, 1), true},
      {MTLPixelFormatRG8Unorm, MTLTextureType2D, NSMakeRange(0, 1), NSMakeRange(0, 1), false},
      {MTLPixelFormatInvalid, MTLTextureType2D, NSMakeRange(0, 1), NSMakeRange(0, 1), false},
  };
  for (const Case& c : cases) {
    id<MTLTexture> view = [[texture newTextureViewWithPixelFormat:c.format
                                                      textureType:c.type
                                                           levels:c.levels
                                                           slices:c.slices] autorelease];
    CHECK_EQ(view != nil, c.made);
  }
}

TEST(texture_that_cannot_be_made_is_nil) {
  auto made = [](void (^change)(MTLTextureDescriptor*)) {
    MTLTextureDescriptor* d =
        [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR8Unorm
                                                           width:4
                                                          height:4
                                                       mipmapped:NO];
    change(d);
    id<MTLTexture> texture = [[Device() newTextureWithDescriptor:d] autorelease];
    return texture != nil;
  };
  CHECK(made(^(MTLTextureDescriptor* d){
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.pixelFormat = MTLPixelFormatInvalid;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.width = 0;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.width = 16385;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.depth = 2;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.mipmapLevelCount = 4;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.textureType = MTLTextureTypeCube;
    d.height = 3;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.textureType = MTLTextureTypeCube;
    d.arrayLength = 2;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.textureType = MTLTextureType2DMultisample;
  }));
  CHECK(!made(^(MTLTextureDescriptor* d) {
    d.sampleCount = 4;
  }));
}

TEST(texture_cubes_and_depth) {
  MTLTextureDescriptor* d =
      [MTLTextureDescriptor textureCubeDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                            size:2
                                                       mipmapped:NO];
  CHECK_EQ(d.textureType, MTLTextureTypeCube);
  d.textureType = MTLTextureTypeCubeArray;
  d.arrayLength = 2;
  id<MTLTexture> cubes = [[Device() newTextureWithDescriptor:d] autorelease];
  CHECK_EQ(cubes.arrayLength, NSUInteger(2));
  MTLRegion all = MTLRegionMake2D(0, 0, 2, 2);
  for (NSUInteger slice = 0; slice < 12; ++slice) {
    float pixels[4] = {float(slice), float(slice), float(slice), float(slice)};
    [cubes replaceRegion:all
             mipmapLevel:0
                   slice:slice
               withBytes:pixels
             bytesPerRow:8
           bytesPerImage:0];
  }
  id<MTLTexture> second = [[cubes newTextureViewWithPixelFormat:MTLPixelFormatR32Float
                                                    textureType:MTLTextureTypeCube
                                                         levels:NSMakeRange(0, 1)
                                                         slices:NSMakeRange(6, 6)] autorelease];
  CHECK_EQ(second.arrayLength, NSUInteger(1));
  CHECK([cubes newTextureViewWithPixelFormat:MTLPixelFormatR32Float
                                 textureType:MTLTextureTypeCube
                                      levels:NSMakeRange(0, 1)
                                      slices:NSMakeRange(6, 5)] == nil);
  id<MTLTexture> depths[2];
  for (int i = 0; i < 2; ++i) {
    depths[i] = Texture(i ? MTLPixelFormatDepth16Unorm : MTLPixelFormatDepth32Float, 1, 1);
    float near = 0.25f;
    uint16_t far = 65535;
    [depths[i] replaceRegion:MTLRegionMake2D(0, 0, 1, 1)
                 mipmapLevel:0
                   withBytes:i ? (const void*)&far : &near
                 bytesPerRow:4];
  }
  MTLSamplerDescriptor* properties = [[[MTLSamplerDescriptor alloc] init] autorelease];
  properties.compareFunction = MTLCompareFunctionLessEqual;
  id<MTLSamplerState> sampler = [[Device() newSamplerStateWithDescriptor:properties] autorelease];
  id<MTLBuffer> out = Buffer(24);
  std::string said = Run([&](id<MTLCommandBuffer> commands) {
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:Pipeline(@"around")];
    [encoder setTexture:cubes atIndex:0];
    [encoder setTexture:second atIndex:1];
    [encoder setTexture:depths[0] atIndex:2];
    [encoder setTexture:depths[1] atIndex:3];
    [encoder setSamplerState:sampler atIndex:0];
    [encoder setBuffer:out offset:0 atIndex:0];
    [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    [encoder endEncoding];
  });
  CHECK_EQ(said, "");
  const float expected[] = {9, 11, 2, 1, 0, 1};
  for (int i = 0; i < 6; ++i) CHECK_EQ(Contents<float>(out)[i], expected[i]);
}

TEST(texture_binding_errors_name_argument_and_cause) {
  id<MTLTexture> floats = Texture(MTLPixelFormatRGBA8Unorm, 4, 4);
  id<MTLTexture> integers = Texture(MTLPixelFormatRGBA8Uint, 4, 4);
  CHECK_CONTAINS(Invert(floats, nil), "kernel 'invert': texture(1) 'out' is not bound");
  CHECK_CONTAINS(Invert(integers, floats),
                 "texture(0) 'in' is declared as texture2d<float, access::read>, but "
                 "MTLPixelFormat 73 holds unsigned integers");
  MTLTextureDescriptor* d = [[[MTLTextureDescriptor alloc] init] autorelease];
  d.textureType = MTLTextureType3D;
  id<MTLTexture> volume = [[Device() newTextureWithDescriptor:d] autorelease];
  CHECK_CONTAINS(Invert(volume, floats), "but the texture has MTLTextureType 7");
  std::string said = Run([&](id<MTLCommandBuffer> commands) {
    id<MTLBlitCommandEncoder> blit = commands.blitCommandEncoder;
    [blit copyFromBuffer:Buffer(64)
               sourceOffset:0
          sourceBytesPerRow:16
        sourceBytesPerImage:0
                 sourceSize:MTLSizeMake(4, 4, 1)
                  toTexture:floats
           destinationSlice:0
           destinationLevel:0
          destinationOrigin:MTLOriginMake(1, 0, 0)];
    [blit endEncoding];
  });
  CHECK_CONTAINS(said, "[copyFromBuffer:toTexture] x 1 to 5 of 4 in level 0");
}

TEST(validation_checks_texture_usage) {
  id<MTLTexture> in = Texture(MTLPixelFormatRGBA8Unorm, 4, 4);
  id<MTLTexture> out = Texture(MTLPixelFormatRGBA8Unorm, 4, 4, MTLTextureUsageShaderRead);
  bool validates = getenv("METAL_DEVICE_WRAPPER_TYPE") != nullptr;
  std::string said = Invert(in, out);
  if (validates && atoi(getenv("METAL_DEVICE_WRAPPER_TYPE"))) {
    CHECK_CONTAINS(said, "the texture's usage is 1");
  } else {
    CHECK_EQ(said, "");
  }
}

TEST(texture_arguments_are_reflected) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  if (!library) CHECK_EQ(Message(error), "");
  id<MTLFunction> function = [[library newFunctionWithName:@"invert"] autorelease];
  MTLAutoreleasedComputePipelineReflection reflection = nil;
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function
                                             options:MTLPipelineOptionArgumentInfo
                                          reflection:&reflection
                                               error:nil] autorelease];
  CHECK(state != nil);
  CHECK_EQ([reflection.arguments count], NSUInteger(2));
  MTLArgument* out = [reflection.arguments objectAtIndex:1];
  CHECK(out.type == MTLArgumentTypeTexture && out.index == 1);
  CHECK(out.access == MTLArgumentAccessWriteOnly && out.textureType == MTLTextureType2D);
  CHECK(out.textureDataType == MTLDataTypeFloat);
}
