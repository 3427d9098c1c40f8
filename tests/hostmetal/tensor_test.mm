// Tensors: what descriptors say, slices of them, and kernels that take them out of an argument buffer.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Size;

namespace {

MTLTensorExtents* Extents(std::vector<NSInteger> values) {
  return [[[MTLTensorExtents alloc] initWithRank:values.size() values:values.data()] autorelease];
}

MTLTensorDescriptor* Descriptor(std::vector<NSInteger> dimensions, std::vector<NSInteger> strides,
                                MTLTensorDataType type = MTLTensorDataTypeFloat32) {
  MTLTensorDescriptor* descriptor = [[[MTLTensorDescriptor alloc] init] autorelease];
  descriptor.dimensions = Extents(dimensions);
  if (!strides.empty()) descriptor.strides = Extents(strides);
  descriptor.dataType = type;
  return descriptor;
}

std::string Wrong(MTLTensorDescriptor* descriptor, NSUInteger offset = 0, NSUInteger bytes = 96) {
  NSError* error = nil;
  id<MTLTensor> tensor = [Buffer(bytes) newTensorWithDescriptor:descriptor
                                                         offset:offset
                                                          error:&error];
  if ([tensor autorelease]) return "made";
  CHECK_EQ([error code], MTLTensorErrorInvalidDescriptor);
  return Message(error);
}

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n"
     "using namespace metal;\n"
     "using namespace mpp::tensor_ops;\n"
     "typedef tensor<device float, dextents<int, 2>> Matrix;\n"
     "struct Arguments { Matrix a, b, c; float scale; };\n"
     "kernel void product(constant Arguments& of [[buffer(0)]]) {\n"
     "  auto a = of.a, b = of.b, c = of.c;\n"
     "  matmul2d<matmul2d_descriptor(8, 8), execution_simdgroup> op;\n"
     "  auto sum = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();\n"
     "  op.run(a, b, sum);\n"
     "  for (auto it = sum.begin(); it != sum.end(); ++it) *it *= of.scale;\n"
     "  sum.store(c);\n"
     "}\n"
     "kernel void direct(Matrix a [[buffer(2)]]) { a[0, 0] = 1; }\n";

struct Arguments {
  MTLResourceID a, b, c;
  float scale;
};

id<MTLComputePipelineState> Made(NSString* name) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  options.languageVersion = MTLLanguageVersion4_0;
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:options
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  return [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
}

}  // namespace

TEST(tensor_descriptors) {
  MTLTensorDescriptor* descriptor = [[[MTLTensorDescriptor alloc] init] autorelease];
  CHECK_EQ([descriptor.dimensions rank], 1u);
  CHECK_EQ([descriptor.dimensions extentAtDimensionIndex:0], 1);
  CHECK_EQ([descriptor.dimensions extentAtDimensionIndex:1], -1);
  CHECK(!descriptor.strides);
  CHECK_EQ(descriptor.dataType, MTLTensorDataTypeFloat32);
  descriptor.storageMode = MTLStorageModePrivate;
  MTLTensorDescriptor* copy = [[descriptor copy] autorelease];
  CHECK_EQ(copy.resourceOptions, NSUInteger(MTLResourceStorageModePrivate));
  CHECK(![[MTLTensorExtents alloc] initWithRank:17 values:nullptr]);
  CHECK([Extents({1, 2}) isEqual:Extents({1, 2})] && ![Extents({1, 2}) isEqual:Extents({2, 1})]);
}

TEST(tensor_refusals) {
  CHECK_EQ(Wrong(Descriptor({4, 6}, {})), "made");
  CHECK_EQ(Wrong(Descriptor({4, 4}, {1, 7}), 4, 104), "made");
  const char* const says[] = {
      "offset 2 is no multiple", "100 bytes at offset 0, and the buffer has 96",
      "dimension 1 is 0",        "stride 0 is 2; 1 is needed",
      "stride 1 is 3; at least", "strides has rank 1, and dimensions 2",
      "dataType is 0",           "of more bytes than there are",
      "a row a multiple of 64",
  };
  MTLTensorDescriptor* learning = Descriptor({4, 4}, {1, 4});
  learning.usage = MTLTensorUsageMachineLearning;
  const std::string got[] = {
      Wrong(Descriptor({4}, {}), 2),
      Wrong(Descriptor({4, 4}, {1, 7})),
      Wrong(Descriptor({4, 0}, {})),
      Wrong(Descriptor({4, 4}, {2, 8})),
      Wrong(Descriptor({4, 4}, {1, 3})),
      Wrong(Descriptor({4, 4}, {1})),
      Wrong(Descriptor({4}, {}, MTLTensorDataTypeNone)),
      Wrong(Descriptor({1 << 30, 1 << 30, 1 << 30}, {})),
      Wrong(learning),
  };
  for (int i = 0; i < 9; ++i) CHECK_CONTAINS(got[i], says[i]);
  NSError* error = nil;
  CHECK(![Device() newTensorWithDescriptor:nil error:&error]);
  CHECK_EQ(Message(error), "[newTensorWithDescriptor:error:] descriptor is nil");
}

TEST(tensor_slices) {
  NSError* error = nil;
  id<MTLTensor> own =
      [[Device() newTensorWithDescriptor:Descriptor({4, 3, 2}, {}, MTLTensorDataTypeInt16)
                                   error:&error] autorelease];
  CHECK(!own.buffer && !own.strides);
  CHECK_EQ([own.dimensions rank], 3u);
  int16_t all[24];
  for (int i = 0; i < 24; ++i) all[i] = int16_t(i);
  [own replaceSliceOrigin:Extents({0, 0, 0})
          sliceDimensions:Extents({4, 3, 2})
                withBytes:all
                  strides:Extents({1, 4, 12})];
  int16_t some[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  [own getBytes:some
              strides:Extents({1, 3, 6})
      fromSliceOrigin:Extents({2, 1, 1})
      sliceDimensions:Extents({2, 2, 1})];
  const int16_t want[8] = {18, 19, -1, 22, 23, -1, -1, -1};
  CHECK_EQ(memcmp(some, want, sizeof want), 0);
  [own getBytes:some  // outside: a message, and nothing is written
              strides:Extents({1, 3, 6})
      fromSliceOrigin:Extents({3, 1, 1})
      sliceDimensions:Extents({2, 2, 1})];
  CHECK_EQ(memcmp(some, want, sizeof want), 0);
  const MTLSizeAndAlign size = [Device() tensorSizeAndAlignWithDescriptor:Descriptor({33}, {})];
  CHECK_EQ(size.size, 256u);
  CHECK_EQ(size.align, 128u);
}

TEST(tensor_arguments) {
  // 7 columns of a buffer of 10, 5 rows, from the second element on.
  id<MTLBuffer> memory = Buffer(4 * 64);
  for (int i = 0; i < 64; ++i) Contents<float>(memory)[i] = float(i % 7 - 3);
  NSError* error = nil;
  id<MTLTensor> a = [[memory newTensorWithDescriptor:Descriptor({7, 5}, {1, 10})
                                              offset:8
                                               error:&error] autorelease];
  CHECK(a.buffer == memory);
  CHECK_EQ(a.bufferOffset, 8u);
  CHECK_EQ([a.strides extentAtDimensionIndex:1], 10);
  id<MTLTensor> b = [[memory newTensorWithDescriptor:Descriptor({6, 7}, {}) offset:0
                                               error:&error] autorelease];
  id<MTLTensor> c = [[Device() newTensorWithDescriptor:Descriptor({6, 5}, {})
                                                 error:&error] autorelease];
  id<MTLBuffer> arguments = Buffer(sizeof(Arguments));
  *Contents<Arguments>(arguments) = {a.gpuResourceID, b.gpuResourceID, c.gpuResourceID, 0.5f};
  id<MTLCommandBuffer> commands = [harness::Queue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:Made(@"product")];
  [encoder setBuffer:arguments offset:0 atIndex:0];
  for (id<MTLTensor> tensor : {a, b, c}) {
    [encoder useResource:tensor usage:MTLResourceUsageRead | MTLResourceUsageWrite];
  }
  [encoder dispatchThreads:Size(32) threadsPerThreadgroup:Size(32)];
  [encoder endEncoding];
  harness::Finish(commands);
  float out[30];
  [c getBytes:out
              strides:Extents({1, 6})
      fromSliceOrigin:Extents({0, 0})
      sliceDimensions:Extents({6, 5})];
  const float* from = Contents<float>(memory);
  for (int row = 0; row < 5; ++row) {
    for (int column = 0; column < 6; ++column) {
      float sum = 0;
      for (int k = 0; k < 7; ++k) sum += from[2 + row * 10 + k] * from[k * 6 + column];
      CHECK_EQ(out[row * 6 + column], sum * 0.5f);
    }
  }
}

TEST(tensor_bound_by_an_encoder) {
  id<MTLComputePipelineState> direct = Made(@"direct");
  id<MTLCommandBuffer> commands = [harness::Queue() commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:direct];
  [encoder setBuffer:Buffer(64) offset:0 atIndex:2];
  [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK_CONTAINS(Message([commands error]),
                 "buffer(2) 'a' is a tensor, which this encoder cannot bind");
}
