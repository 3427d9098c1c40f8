// Textures on the first device against those on the processor: `textures LIBRARY` reads, writes and
// samples every kind through every sampler at random points, and ends with status 1 where pixels differ.
#include "benchmarks/metal_program.h"

#include <string.h>

#include <random>

namespace {

using metal_ops::Finish;

constexpr NSUInteger kWidth = 13, kHeight = 9, kDepth = 5, kSlices = 3, kLevels = 3;
constexpr uint32_t kPoints = 4096;

struct Kind {
  const char* kernel;
  MTLTextureType type;
  NSUInteger width, height, depth, slices;
};
constexpr Kind kKinds[] = {
    {"sampled_2d", MTLTextureType2D, kWidth, kHeight, 1, 1},
    {"gathered_2d", MTLTextureType2D, kWidth, kHeight, 1, 1},
    {"sampled_array", MTLTextureType2DArray, kWidth, kHeight, 1, kSlices},
    {"sampled_3d", MTLTextureType3D, kWidth, kHeight, kDepth, 1},
    {"sampled_cube", MTLTextureTypeCube, kHeight, kHeight, 1, 1},
    {"compared", MTLTextureType2D, kWidth, kHeight, 1, 1},
};
struct Format {
  MTLPixelFormat format;
  NSUInteger bytes;
  bool random_bits;  // any bits are a number; else they are made of floats
};
constexpr Format kFormats[] = {
    {MTLPixelFormatRGBA8Unorm, 4, true},    {MTLPixelFormatBGRA8Unorm_sRGB, 4, true},
    {MTLPixelFormatR8Snorm, 1, true},       {MTLPixelFormatRG16Unorm, 4, true},
    {MTLPixelFormatRGBA32Float, 16, false}, {MTLPixelFormatR32Float, 4, false},
};
constexpr Format kDepthFormat = {MTLPixelFormatDepth32Float, 4, false};

std::vector<char> Pixels(const Format& format, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<char> bytes(count * format.bytes);
  if (format.random_bits) {
    for (char& b : bytes) b = char(random());
  } else {
    std::uniform_real_distribution<float> values(0, 1);
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const float v = values(random);
      memcpy(&bytes[i], &v, 4);
    }
  }
  return bytes;
}

// The same pixels on any device.
id<MTLTexture> Texture(id<MTLDevice> device, const Kind& kind, const Format& format, bool empty) {
  MTLTextureDescriptor* d = [[[MTLTextureDescriptor alloc] init] autorelease];
  const bool cube = kind.type == MTLTextureTypeCube;
  [d setTextureType:kind.type];
  [d setPixelFormat:format.format];
  [d setWidth:kind.width];
  [d setHeight:kind.height];
  [d setDepth:kind.depth];
  [d setArrayLength:kind.slices];
  [d setMipmapLevelCount:empty ? 1 : kLevels];
  [d setUsage:MTLTextureUsageShaderRead | MTLTextureUsageShaderWrite];
  id<MTLTexture> texture = [[device newTextureWithDescriptor:d] autorelease];
  if (!texture) metal_ops::End("a texture", nil);
  for (NSUInteger level = 0; !empty && level < kLevels; ++level) {
    const NSUInteger w = std::max<NSUInteger>(1, kind.width >> level),
                     h = std::max<NSUInteger>(1, kind.height >> level),
                     z = std::max<NSUInteger>(1, kind.depth >> level);
    for (NSUInteger slice = 0; slice < (cube ? 6 : kind.slices); ++slice) {
      const std::vector<char> bytes = Pixels(format, w * h * z, unsigned(17 * level + slice));
      [texture replaceRegion:MTLRegionMake3D(0, 0, 0, w, h, z)
                 mipmapLevel:level
                       slice:slice
                   withBytes:bytes.data()
                 bytesPerRow:w * format.bytes
               bytesPerImage:w * h * format.bytes];
    }
  }
  return texture;
}

id<MTLSamplerState> Sampler(id<MTLDevice> device, int mode, bool linear) {
  MTLSamplerDescriptor* d = [[[MTLSamplerDescriptor alloc] init] autorelease];
  [d setMinFilter:linear ? MTLSamplerMinMagFilterLinear : MTLSamplerMinMagFilterNearest];
  [d setMagFilter:linear ? MTLSamplerMinMagFilterLinear : MTLSamplerMinMagFilterNearest];
  [d setMipFilter:linear ? MTLSamplerMipFilterLinear : MTLSamplerMipFilterNearest];
  [d setSAddressMode:MTLSamplerAddressMode(mode)];
  [d setTAddressMode:MTLSamplerAddressMode(mode)];
  [d setRAddressMode:MTLSamplerAddressMode(mode)];
  [d setBorderColor:MTLSamplerBorderColorOpaqueWhite];
  [d setCompareFunction:MTLCompareFunctionLess];
  return [[device newSamplerStateWithDescriptor:d] autorelease];
}

std::vector<float> Sampled(id<MTLLibrary> library, const Kind& kind, const Format& format, int mode,
                           bool linear, const std::vector<float>& at) {
  id<MTLDevice> device = [library device];
  id<MTLBuffer> points = [[device newBufferWithBytes:at.data()
                                              length:at.size() * 4
                                             options:MTLResourceStorageModeShared] autorelease];
  id<MTLBuffer> out = [[device newBufferWithLength:at.size() * 4
                                           options:MTLResourceStorageModeShared] autorelease];
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:metal_ops::Pipeline(library, kind.kernel)];
  [encoder setTexture:Texture(device, kind, format, false) atIndex:0];
  [encoder setSamplerState:Sampler(device, mode, linear) atIndex:0];
  [encoder setBuffer:points offset:0 atIndex:0];
  [encoder setBuffer:out offset:0 atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(kPoints, 1, 1) threadsPerThreadgroup:MTLSizeMake(96, 1, 1)];
  [encoder endEncoding];
  Finish(commands, kind.kernel);
  const float* values = static_cast<const float*>([out contents]);
  return std::vector<float>(values, values + at.size());
}

// Through a shader that reads and writes pixels; the grid is larger than the texture.
std::vector<char> Copied(id<MTLLibrary> library, const char* kernel, const Format& format) {
  id<MTLDevice> device = [library device];
  const Kind& kind = kKinds[0];
  id<MTLTexture> to = Texture(device, kind, format, true);
  id<MTLCommandQueue> queue = [[device newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:metal_ops::Pipeline(library, kernel)];
  [encoder setTexture:Texture(device, kind, format, false) atIndex:0];
  [encoder setTexture:to atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(20, 20, 1) threadsPerThreadgroup:MTLSizeMake(8, 4, 1)];
  [encoder endEncoding];
  Finish(commands, kernel);
  std::vector<char> pixels(kWidth * kHeight * format.bytes);
  [to getBytes:pixels.data()
      bytesPerRow:kWidth * format.bytes
       fromRegion:MTLRegionMake2D(0, 0, kWidth, kHeight)
      mipmapLevel:0];
  return pixels;
}

}  // namespace

int main(int argc, char** argv) {
  @autoreleasepool {
    if (argc != 2) {
      fprintf(stderr, "usage: textures LIBRARY\n");
      return 2;
    }
    const metal_ops::Libraries libraries(argv[1]);
    std::mt19937 random(5);
    std::uniform_real_distribution<float> around(-1.5f, 2.5f);
    std::vector<float> at(4 * kPoints);
    for (float& v : at) v = around(random);
    int compared = 0, differ = 0;
    auto tell = [&](bool same, const char* kernel, const Format& format, int mode, int linear,
                    double worst) {
      ++compared;
      if (same) return;
      ++differ;
      printf("%s, format %d, address mode %d, linear %d: differs by up to %g\n", kernel,
             int(format.format), mode, linear, worst);
    };
    for (const Kind& kind : kKinds) {
      const bool depth = strcmp(kind.kernel, "compared") == 0;
      for (const Format& format : kFormats) {
        const Format& used = depth ? kDepthFormat : format;
        for (int mode : {0, 1, 2, 3, 4, 5}) {
          for (bool linear : {false, true}) {
            @autoreleasepool {
              const auto got = Sampled(libraries.gpu, kind, used, mode, linear, at);
              const auto expected = Sampled(libraries.cpu, kind, used, mode, linear, at);
              double worst = 0;
              for (size_t i = 0; i < got.size(); ++i) {
                worst = std::max(worst, fabs(double(got[i]) - expected[i]));
              }
              // The curve of sRGB rounds otherwise; nothing else does.
              tell(worst <= (used.format == MTLPixelFormatBGRA8Unorm_sRGB ? 1e-6 : 0), kind.kernel,
                   used, mode, linear, worst);
            }
          }
        }
        if (depth) break;
      }
    }
    for (const Format& format : kFormats) {
      tell(Copied(libraries.gpu, "copied", format) == Copied(libraries.cpu, "copied", format),
           "copied", format, -1, -1, 1);
    }
    for (MTLPixelFormat format : {MTLPixelFormatR8Uint, MTLPixelFormatR32Uint}) {
      const Format counted = {format, format == MTLPixelFormatR8Uint ? 1u : 4u, true};
      tell(Copied(libraries.gpu, "counted", counted) == Copied(libraries.cpu, "counted", counted),
           "counted", counted, -1, -1, 1);
    }
    printf("%d textures and samplers compared with the CPU device, %d differ\n", compared, differ);
    return differ != 0;
  }
}
