// newLibraryWithSource: the shader compiler behind Apple's call.
#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;

namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "#ifndef FACTOR\n"
     "#define FACTOR 2\n"
     "#endif\n"
     "kernel void scale(device float* x [[buffer(0)]], constant float& by [[buffer(1)]],\n"
     "                  uint i [[thread_position_in_grid]]) {\n"
     "  x[i] = x[i] * by * FACTOR;\n"
     "}\n";

float Scale(id<MTLLibrary> library, float x, float by) {
  id<MTLFunction> function = [[library newFunctionWithName:@"scale"] autorelease];
  NSError* error = nil;
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLBuffer> buffer = Buffer(400);
  for (int i = 0; i < 100; ++i) Contents<float>(buffer)[i] = x;
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  id<MTLCommandBuffer> commands = queue.commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:state];
  [encoder setBuffer:buffer offset:0 atIndex:0];
  [encoder setBytes:&by length:sizeof by atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(100, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK(commands.error == nil);
  return Contents<float>(buffer)[99];
}

}  // namespace

TEST(source_compiles_and_runs) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  CHECK_EQ(Scale(library, 3, 5), 30.0f);
}

TEST(source_options_reach_the_compiler) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  options.preprocessorMacros = [NSDictionary dictionaryWithObject:[NSNumber numberWithInt:7]
                                                           forKey:@"FACTOR"];
  options.languageVersion = MTLLanguageVersion2_4;
  options.fastMathEnabled = NO;
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:options
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  CHECK_EQ(Scale(library, 1, 1), 7.0f);
}

TEST(source_errors_carry_the_diagnostics) {
  NSError* error = nil;
  id<MTLLibrary> library = [Device() newLibraryWithSource:@"kernel void f(device float* x) {\n"
                                                           "  x[0] = undeclared;\n"
                                                           "}\n"
                                                  options:nil
                                                    error:&error];
  CHECK(library == nil);
  CHECK_EQ(harness::Text([error domain]), "MTLLibraryErrorDomain");
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorCompileFailure));
  CHECK_CONTAINS(Message(error), "program_source:2:10");
  CHECK_CONTAINS(Message(error), "undeclared");
}

TEST(source_compiles_in_the_background) {
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  __block id<MTLLibrary> library = nil;
  [Device() newLibraryWithSource:kSource
                         options:nil
               completionHandler:^(id<MTLLibrary> made, NSError* error) {
                 library = [made retain];
                 dispatch_semaphore_signal(done);
               }];
  dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
  CHECK([[library functionNames] containsObject:@"scale"]);
  [library release];
  dispatch_release(done);
}

TEST(validation_stops_out_of_range_accesses) {
  if (!harness::Validating()) return;  // unchecked kernels would write there
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:nil
                                                     error:nullptr] autorelease];
  id<MTLFunction> function = [[library newFunctionWithName:@"scale"] autorelease];
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function error:nullptr] autorelease];
  id<MTLBuffer> buffer = Buffer(400);
  NSError* error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    float by = 1;
    [encoder setComputePipelineState:state];
    [encoder setBuffer:buffer offset:0 atIndex:0];
    [encoder setBytes:&by length:sizeof by atIndex:1];
    [encoder dispatchThreads:harness::Size(101) threadsPerThreadgroup:harness::Size(32)];
  });
  CHECK_EQ([error code], NSInteger(MTLCommandBufferErrorPageFault));
  CHECK_CONTAINS(Message(error), "offset 400 of buffer(0), which has 400 bytes");
}
