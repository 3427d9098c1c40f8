// generateMipmapsForTexture: as dispatches of a shader, so that every driver has it.
#include "hostmetal/src/mipmaps.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "hostmetal/src/compute_encoder.h"
#include "hostmetal/src/errors.h"

namespace hostmetal {
namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "constexpr sampler mean(filter::linear, address::clamp_to_edge);\n"
     "kernel void slices(texture2d_array<float> in, texture2d_array<float, access::write> out,\n"
     "                   uint3 i [[thread_position_in_grid]]) {\n"
     "  float2 size = float2(out.get_width(), out.get_height());\n"
     "  out.write(in.sample(mean, (float2(i.xy) + 0.5f) / size, i.z), i.xy, i.z);\n"
     "}\n"
     "kernel void volume(texture3d<float> in, texture3d<float, access::write> out,\n"
     "                   uint3 i [[thread_position_in_grid]]) {\n"
     "  float3 size = float3(out.get_width(), out.get_height(), out.get_depth());\n"
     "  out.write(in.sample(mean, (float3(i) + 0.5f) / size), i);\n"
     "}\n";

struct Pipelines {
  id<MTLComputePipelineState> slices, volume;
  std::string wrong;
};

// Made once per device.
const Pipelines& PipelinesOf(HMDevice* device) {
  static std::mutex mutex;
  static auto* made = new std::map<HMDevice*, Pipelines>;
  std::lock_guard<std::mutex> lock(mutex);
  auto found = made->find(device);
  if (found != made->end()) return found->second;
  Pipelines& pipelines = (*made)[device];
  NSError* error = nil;
  id<MTLLibrary> library = [device newLibraryWithSource:kSource options:nil error:&error];
  auto pipeline = [&](NSString* name) -> id<MTLComputePipelineState> {
    if (error) return nil;
    id<MTLFunction> function = [library newFunctionWithName:name];
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithFunction:function
                                                                              error:&error];
    [function release];
    return state;
  };
  pipelines.slices = pipeline(@"slices");
  pipelines.volume = pipeline(@"volume");
  if (error) pipelines.wrong = ToString([error localizedDescription]);
  [library release];
  return pipelines;
}

}  // namespace

std::string EncodeMipmaps(HMEncoder* encoder, HMTexture* texture) {
  const metallib_texture& layout = texture->_layout;
  if (layout.levels == 1) return "the texture has one level, its mipmapLevelCount is 1";
  switch (layout.component) {
    case METALLIB_UINT8:
    case METALLIB_SINT8:
    case METALLIB_UINT16:
    case METALLIB_SINT16:
    case METALLIB_UINT32:
    case METALLIB_SINT32:
      return "MTLPixelFormat " + std::to_string(texture->_pixelFormat) +
             " holds integers, which are not filtered";
    default:
      break;
  }
  const Pipelines& pipelines = PipelinesOf(texture->_device);
  if (!pipelines.wrong.empty()) return pipelines.wrong;
  const bool volume = texture->_textureType == MTLTextureType3D;
  HMComputeCommandEncoder* inner = [[HMComputeCommandEncoder alloc] initInside:encoder];
  [inner setComputePipelineState:volume ? pipelines.volume : pipelines.slices];
  // Views without other holders: the command buffer's, whether it retains its arguments or not.
  const auto level = [&](NSUInteger number) {
    const MTLTextureType type = volume ? MTLTextureType3D : MTLTextureType2DArray;
    HMTexture* view = [texture newPlainViewOfType:type level:number];
    encoder->_buffer->_state->resources.push_back(view);
    return view;
  };
  for (uint32_t i = 1; i < layout.levels; ++i) {
    [inner setTexture:level(i - 1) atIndex:0];
    [inner setTexture:level(i) atIndex:1];
    MTLSize grid = SizeAt(layout, i);
    if (!volume) grid.depth = layout.array_length;
    [inner dispatchThreads:grid threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
  }
  [inner endEncoding];
  [inner release];
  return "";
}

}  // namespace hostmetal
