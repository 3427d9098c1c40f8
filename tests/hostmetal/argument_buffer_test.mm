// Argument buffers: structs of pointers, textures, samplers and constants, and their reflection.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Size;
using harness::Text;

namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "struct Inner { device float* more [[id(0)]]; constant int& k [[id(1)]]; };\n"
     "struct Args {\n"
     "  device float* a [[id(0)]];\n"
     "  texture2d<float> t [[id(1)]];\n"
     "  sampler s [[id(2)]];\n"
     "  float scale [[id(3)]];\n"
     "  array<texture2d<float, access::write>, 2> outs [[id(4)]];\n"
     "  constant Inner* inner [[id(8)]];\n"
     "  float4 c;\n"
     "  half2x3 m;\n"
     "};\n"
     "kernel void mix(constant Args& args [[buffer(3)]], device float* out [[buffer(1)]],\n"
     "                uint i [[thread_position_in_grid]]) {\n"
     "  constexpr sampler own(coord::normalized, filter::linear, lod_clamp(0.0f, 0.25f));\n"
     "  out[i] = args.a[i] * args.scale + args.t.read(uint2(i, 0)).x +\n"
     "           100 * args.t.sample(args.s, float2(0.5f)).x + args.inner[0].more[i] +\n"
     "           args.inner[0].k + args.c.w + args.m[1][2] +\n"
     "           1000 * args.t.sample(own, float2(0.5f)).x;\n"
     "  args.outs[1].write(float4(out[i]), uint2(i, 0));\n"
     "}\n";

id<MTLFunction> Mix() {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  return [[library newFunctionWithName:@"mix"] autorelease];
}

id<MTLTexture> Texture(NSUInteger width, MTLTextureUsage usage) {
  MTLTextureDescriptor* descriptor =
      [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                         width:width
                                                        height:1
                                                     mipmapped:NO];
  descriptor.usage = usage;
  return [[Device() newTextureWithDescriptor:descriptor] autorelease];
}

// The struct as a host writes it by hand.
struct Args {
  uint64_t a;
  MTLResourceID t, s;
  float scale;
  MTLResourceID outs[2];
  uint64_t inner;
  alignas(16) float c[4];
  uint16_t m[8];
};
struct Inner {
  uint64_t more, k;
};
constexpr uint16_t kHalfTwo = 0x4000;

struct Parts {
  id<MTLFunction> function = Mix();
  id<MTLBuffer> a = Buffer(16), more = Buffer(16), k = Buffer(8), out = Buffer(16);
  id<MTLTexture> t = Texture(2, MTLTextureUsageShaderRead);
  id<MTLTexture> result = Texture(2, MTLTextureUsageShaderWrite);
  id<MTLSamplerState> sampler;
  Parts() {
    for (int i = 0; i < 4; ++i) {
      Contents<float>(a)[i] = float(i + 1);
      Contents<float>(more)[i] = float(10 * i);
    }
    Contents<int>(k)[1] = 7;
    const float pixels[] = {1, 3};
    [t replaceRegion:MTLRegionMake2D(0, 0, 2, 1) mipmapLevel:0 withBytes:pixels bytesPerRow:8];
    MTLSamplerDescriptor* d = [[[MTLSamplerDescriptor alloc] init] autorelease];
    d.minFilter = d.magFilter = MTLSamplerMinMagFilterNearest;
    d.supportArgumentBuffers = YES;
    sampler = [[Device() newSamplerStateWithDescriptor:d] autorelease];
  }
  void Run(id<MTLBuffer> arguments, NSUInteger offset) {
    NSError* error = nil;
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
    CHECK_EQ(Message(error), "(nil)");
    error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:state];
      [encoder setBuffer:arguments offset:offset atIndex:3];
      [encoder setBuffer:out offset:0 atIndex:1];
      for (id resource in @[ a, more, k, t, result ]) {
        [encoder useResource:resource usage:MTLResourceUsageRead | MTLResourceUsageWrite];
      }
      [encoder dispatchThreads:Size(2) threadsPerThreadgroup:Size(2)];
    });
    CHECK_EQ(Message(error), "(nil)");
    float written[2];
    [result getBytes:written bytesPerRow:8 fromRegion:MTLRegionMake2D(0, 0, 2, 1) mipmapLevel:0];
    for (int i = 0; i < 2; ++i) {
      // Nearest at the middle is the second pixel; linear is the mean of both.
      const float expected = 0.5f * (i + 1) + (i ? 3 : 1) + 300 + 10 * i + 7 + 4 + 2 + 2000;
      CHECK_EQ(Contents<float>(out)[i], expected);
      CHECK_EQ(written[i], expected);
    }
  }
};

}  // namespace

TEST(argument_buffers_are_filled_by_encoders) {
  Parts parts;
  MTLArgument* reflection = nil;
  id<MTLArgumentEncoder> encoder =
      [[parts.function newArgumentEncoderWithBufferIndex:3 reflection:&reflection] autorelease];
  CHECK_EQ(encoder.encodedLength, sizeof(Args));
  CHECK_EQ(encoder.alignment, 16u);
  CHECK_EQ(Text(reflection.name), "args");
  id<MTLBuffer> arguments = Buffer(3 * sizeof(Args));
  [encoder setArgumentBuffer:arguments startOffset:sizeof(Args) arrayElement:1];
  [encoder setBuffer:parts.a offset:0 atIndex:0];
  [encoder setTexture:parts.t atIndex:1];
  [encoder setSamplerStates:&parts.sampler withRange:NSMakeRange(2, 1)];
  *static_cast<float*>([encoder constantDataAtIndex:3]) = 0.5f;
  id<MTLTexture> outs[] = {nil, parts.result};
  [encoder setTextures:outs withRange:NSMakeRange(4, 2)];
  static_cast<float*>([encoder constantDataAtIndex:9])[3] = 4;
  static_cast<uint16_t*>([encoder constantDataAtIndex:10])[6] = kHalfTwo;

  id<MTLArgumentEncoder> nested = [[encoder newArgumentEncoderForBufferAtIndex:8] autorelease];
  CHECK_EQ(nested.encodedLength, sizeof(Inner));
  id<MTLBuffer> inner = Buffer(sizeof(Inner));
  [nested setArgumentBuffer:inner offset:0];
  id<MTLBuffer> both[] = {parts.more, parts.k};
  const NSUInteger offsets[] = {0, 4};
  [nested setBuffers:both offsets:offsets withRange:NSMakeRange(0, 2)];
  [encoder setBuffer:inner offset:0 atIndex:8];
  parts.Run(arguments, 2 * sizeof(Args));
}

TEST(argument_buffers_are_filled_by_hand) {
  Parts parts;
  id<MTLBuffer> arguments = Buffer(sizeof(Args)), inner = Buffer(sizeof(Inner));
  auto& args = *Contents<Args>(arguments);
  args.a = parts.a.gpuAddress;
  args.t = parts.t.gpuResourceID;
  args.s = parts.sampler.gpuResourceID;
  args.scale = 0.5f;
  args.outs[1] = parts.result.gpuResourceID;
  args.inner = inner.gpuAddress;
  args.c[3] = 4;
  args.m[6] = kHalfTwo;
  *Contents<Inner>(inner) = {parts.more.gpuAddress, parts.k.gpuAddress + 4};
  parts.Run(arguments, 0);
}

TEST(argument_encoders_of_descriptors_lay_out_the_same) {
  Parts parts;
  NSMutableArray* list = [NSMutableArray array];
  auto add = [&](NSUInteger index, MTLDataType type, NSUInteger length) {
    MTLArgumentDescriptor* d = [MTLArgumentDescriptor argumentDescriptor];
    d.index = index;
    d.dataType = type;
    d.arrayLength = length;
    [list insertObject:d atIndex:0];  // in any order
  };
  add(0, MTLDataTypePointer, 0);
  add(1, MTLDataTypeTexture, 0);
  add(2, MTLDataTypeSampler, 0);
  add(3, MTLDataTypeFloat, 0);
  add(4, MTLDataTypeTexture, 2);
  add(8, MTLDataTypePointer, 0);
  add(9, MTLDataTypeFloat4, 0);
  add(10, MTLDataTypeHalf2x3, 0);
  id<MTLArgumentEncoder> encoder = [[Device() newArgumentEncoderWithArguments:list] autorelease];
  CHECK_EQ(encoder.encodedLength, sizeof(Args));
  id<MTLBuffer> arguments = Buffer(sizeof(Args));
  [encoder setArgumentBuffer:arguments offset:0];
  char* base = Contents<char>(arguments);
  CHECK_EQ(static_cast<char*>([encoder constantDataAtIndex:3]), base + offsetof(Args, scale));
  CHECK_EQ(static_cast<char*>([encoder constantDataAtIndex:9]), base + offsetof(Args, c));
  CHECK_EQ(static_cast<char*>([encoder constantDataAtIndex:10]), base + offsetof(Args, m));
  [encoder setTexture:parts.t atIndex:5];
  CHECK_EQ(Contents<Args>(arguments)->outs[1]._impl, parts.t.gpuResourceID._impl);

  add(4, MTLDataTypeTexture, 0);
  CHECK([Device() newArgumentEncoderWithArguments:list] == nil);
}

TEST(argument_encoders_refuse_what_does_not_fit) {
  Parts parts;
  id<MTLArgumentEncoder> encoder =
      [[parts.function newArgumentEncoderWithBufferIndex:3] autorelease];
  id<MTLBuffer> arguments = Buffer(sizeof(Args) + 16);
  CHECK([encoder constantDataAtIndex:3] == nullptr);  // no buffer
  [encoder setArgumentBuffer:arguments offset:32];
  CHECK([encoder constantDataAtIndex:3] == nullptr);  // too short from there
  [encoder setArgumentBuffer:arguments offset:8];
  CHECK([encoder constantDataAtIndex:3] == nullptr);  // not aligned
  [encoder setArgumentBuffer:arguments offset:16];
  CHECK([encoder constantDataAtIndex:3] != nullptr);
  CHECK([encoder constantDataAtIndex:0] == nullptr);   // a pointer
  CHECK([encoder constantDataAtIndex:77] == nullptr);  // nothing
  [encoder setTexture:parts.t atIndex:0];
  [encoder setBuffer:parts.a offset:17 atIndex:0];
  CHECK_EQ(*Contents<uint64_t>(arguments), 0u);
  CHECK_EQ(Contents<uint64_t>(arguments)[2], 0u);
  CHECK([encoder newArgumentEncoderForBufferAtIndex:0] == nil);
  CHECK([parts.function newArgumentEncoderWithBufferIndex:1] == nil);  // no struct
  CHECK([parts.function newArgumentEncoderWithBufferIndex:9] == nil);
}

TEST(reflection_describes_structs) {
  NSError* error = nil;
  MTLComputePipelineReflection* reflection = nil;
  [[Device() newComputePipelineStateWithFunction:Mix()
                                         options:MTLPipelineOptionBufferTypeInfo
                                      reflection:&reflection
                                           error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLBufferBinding> args = nil, out = nil;
  for (id<MTLBinding> binding in reflection.bindings) {
    (binding.index == 3 ? args : out) = (id<MTLBufferBinding>)binding;
  }
  MTLStructType* type = args.bufferStructType;
  CHECK_EQ(type.members.count, 8u);
  MTLStructMember* member = [type memberByName:@"outs"];
  CHECK_EQ(member.offset, offsetof(Args, outs));
  CHECK_EQ(member.argumentIndex, 4u);
  CHECK_EQ(member.dataType, MTLDataTypeArray);
  CHECK_EQ(member.arrayType.arrayLength, 2u);
  CHECK_EQ(member.arrayType.stride, 8u);
  CHECK_EQ(member.arrayType.argumentIndexStride, 1u);
  MTLTextureReferenceType* texture = member.arrayType.elementTextureReferenceType;
  CHECK_EQ(texture.textureType, MTLTextureType2D);
  CHECK_EQ(texture.textureDataType, MTLDataTypeFloat);
  CHECK_EQ(texture.access, MTLBindingAccessWriteOnly);
  CHECK(member.structType == nil && member.pointerType == nil);
  CHECK_EQ([type memberByName:@"c"].argumentIndex, 9u);
  CHECK_EQ([type memberByName:@"c"].dataType, MTLDataTypeFloat4);
  CHECK_EQ([type memberByName:@"m"].dataType, MTLDataTypeHalf2x3);
  CHECK_EQ([type memberByName:@"s"].dataType, MTLDataTypeSampler);
  MTLPointerType* pointer = [type memberByName:@"inner"].pointerType;
  CHECK_EQ(pointer.dataSize, 16u);
  CHECK_EQ(pointer.access, MTLBindingAccessReadOnly);
  CHECK(pointer.elementIsArgumentBuffer);
  MTLStructMember* k = [pointer.elementStructType memberByName:@"k"];
  CHECK_EQ(k.pointerType.elementType, MTLDataTypeInt);
  CHECK([type memberByName:@"none"] == nil);
  CHECK_EQ([type memberByName:@"a"].pointerType.access, MTLBindingAccessReadWrite);
  CHECK(out.bufferStructType == nil);
  CHECK_EQ(out.bufferPointerType.elementType, MTLDataTypeFloat);
  id<MTLArgumentEncoder> encoder =
      [[Device() newArgumentEncoderWithBufferBinding:args] autorelease];
  CHECK_EQ(encoder.encodedLength, sizeof(Args));
}
