// newLibraryWithSource: the shader compiler behind Apple's call.
#include <atomic>
#include <thread>
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

// Such as a text in another encoding than was said.
TEST(source_that_is_nil_is_refused) {
  NSString* none = nil;
  NSError* error = nil;
  CHECK([Device() newLibraryWithSource:none options:nil error:&error] == nil);
  CHECK_EQ(Message(error), "[newLibraryWithSource] the source is nil");
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

#if defined(__x86_64__)
// Fast math takes subnormal numbers for 0, reading and writing, and keeps halves; it leaves those of
// others alone that run on the same threads.
TEST(source_with_fast_math_flushes_subnormals) {
  NSString* const source =
      @"#include <metal_stdlib>\n"
       "using namespace metal;\n"
       "kernel void plain(device float* x, device half* h, uint i [[thread_position_in_grid]]) {\n"
       "  x[2 * i] = x[2 * i] * x[2 * i + 1];\n"
       "  h[2 * i] = h[2 * i] * h[2 * i + 1];\n"
       "}\n"
       "kernel void meeting(device float* x, device half* h, uint i [[thread_position_in_grid]]) "
       "{\n"
       "  x[2 * i] = x[2 * i] * x[2 * i + 1];\n"
       "  h[2 * i] = h[2 * i] * h[2 * i + 1];\n"
       "  threadgroup_barrier(mem_flags::mem_device);\n"
       "  if (i & 1) x[2 * i] += x[2 * i - 2];\n"
       "}\n";
  struct {
    NSString* kernel;
    bool fast;
  } cases[] = {{@"plain", true},   {@"plain", false},   {@"plain", true},
               {@"meeting", true}, {@"meeting", false}, {@"meeting", true}};
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  for (const auto& c : cases) {
    MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
    options.fastMathEnabled = c.fast;
    NSError* error = nil;
    id<MTLLibrary> library = [[Device() newLibraryWithSource:source options:options
                                                       error:&error] autorelease];
    CHECK_EQ(Message(error), "(nil)");
    id<MTLFunction> function = [[library newFunctionWithName:c.kernel] autorelease];
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
    id<MTLBuffer> floats = Buffer(4 * 128), halves = Buffer(2 * 128);
    for (int i = 0; i < 64; ++i) {
      const bool reads = i & 2;  // a subnormal number, or makes one
      Contents<float>(floats)[2 * i] = reads ? 0x1p-130f : 0x1p-70f;
      Contents<float>(floats)[2 * i + 1] = reads ? 0x1p10f : 0x1p-70f;
      Contents<uint16_t>(halves)[2 * i] = reads ? 0x0001 : 0x0400;      // 2^-24, 2^-14
      Contents<uint16_t>(halves)[2 * i + 1] = reads ? 0x4000 : 0x3800;  // 2, 0.5
    }
    id<MTLCommandBuffer> commands = queue.commandBuffer;
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:state];
    [encoder setBuffer:floats offset:0 atIndex:0];
    [encoder setBuffer:halves offset:0 atIndex:1];
    [encoder dispatchThreads:MTLSizeMake(64, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK(commands.error == nil);
    for (int i = 0; i < 64; ++i) {
      const bool reads = i & 2;
      const float product = c.fast ? 0.0f : reads ? 0x1p-120f : 0x1p-140f;
      const bool added = i & 1 && [c.kernel isEqual:@"meeting"];
      CHECK_EQ(Contents<float>(floats)[2 * i], added ? 2 * product : product);
      CHECK_EQ(Contents<uint16_t>(halves)[2 * i], uint16_t(reads ? 0x0002 : 0x0200));
    }
  }
}
#endif

TEST(source_options_that_were_never_initialised) {
  MTLCompileOptions* options = [[MTLCompileOptions alloc] autorelease];
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:options
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  CHECK_EQ(Scale(library, 3, 5), 30.0f);
}

TEST(source_that_compiles_clears_the_error) {
  NSError* stale = [NSError errorWithDomain:NSCocoaErrorDomain code:1 userInfo:nil];
  NSError* error = stale;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:@"kernel void nothing() {}"
                                                   options:nil
                                                     error:&error] autorelease];
  CHECK(error == nil);
  error = stale;
  id<MTLFunction> function = [[library newFunctionWithName:@"nothing"
                                            constantValues:nil
                                                     error:&error] autorelease];
  CHECK(error == nil);
  error = stale;
  CHECK([[Device() newComputePipelineStateWithFunction:function error:&error] autorelease] != nil);
  CHECK(error == nil);
  error = stale;
  CHECK([[Device() newLibraryWithFile:harness::LibraryPath() error:&error] autorelease] != nil);
  CHECK(error == nil);
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

TEST(functions_have_the_constants_that_they_use) {
  NSString* text =
      @"constant int a [[function_constant(0)]]; constant float b [[function_constant(1)]];\n"
       "constant int c [[function_constant(2)]];\n"
       "constant float b_or_2 = is_function_constant_defined(b) ? b : 2;\n"
       "kernel void none(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
       "kernel void both(device float* x [[buffer(0)]]) { x[0] = a + b_or_2; }\n";
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:text options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> none = [[library newFunctionWithName:@"none"] autorelease];
  CHECK_EQ([none.functionConstantsDictionary count], NSUInteger(0));
  CHECK([[Device() newComputePipelineStateWithFunction:none error:&error] autorelease] != nil);
  id<MTLFunction> both = [[library newFunctionWithName:@"both"] autorelease];
  NSDictionary* constants = both.functionConstantsDictionary;
  CHECK_EQ([constants count], NSUInteger(2));
  CHECK([[constants objectForKey:@"a"] required]);
  CHECK(![[constants objectForKey:@"b"] required]);
  CHECK([Device() newComputePipelineStateWithFunction:both error:&error] == nil);
  CHECK_CONTAINS(Message(error), "'both' needs function constant 0 ('a')");
  MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  CHECK([library newFunctionWithName:@"both" constantValues:values error:&error] == nil);
  CHECK_CONTAINS(Message(error), "function constant 0 ('a') of function 'both' has no value");
  int forty = 40;
  [values setConstantValue:&forty type:MTLDataTypeInt atIndex:0];
  [values setConstantValue:&forty type:MTLDataTypeUInt atIndex:2];  // of another type, and unused
  both = [[library newFunctionWithName:@"both" constantValues:values error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  CHECK([[Device() newComputePipelineStateWithFunction:both error:&error] autorelease] != nil);
}

TEST(bindings_say_what_a_buffer_holds) {
  NSString* text = @"#include <metal_stdlib>\nusing namespace metal;\n"
                    "enum Mode : ushort { on }; struct Base { half4 h; };\n"
                    "struct S : Base { float3 x; packed_float3 y[2]; Mode mode; int bits : 3; };\n"
                    "kernel void k(constant float4x3& m [[buffer(0)]], constant array<uint3, 5>& a "
                    "[[buffer(1)]],\n"
                    "              constant Mode& e [[buffer(2)]], constant S& s [[buffer(3)]],\n"
                    "              device float* x [[buffer(4)]], device float* none "
                    "[[buffer(5)]]) { x[0] = m[0].x + a[0].x + e + s.x.x; }\n";
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:text options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function = [[library newFunctionWithName:@"k"] autorelease];
  MTLAutoreleasedComputePipelineReflection reflection = nil;
  [[Device() newComputePipelineStateWithFunction:function
                                         options:MTLPipelineOptionBufferTypeInfo
                                      reflection:&reflection
                                           error:&error] autorelease];
  NSArray* bindings = reflection.bindings;
  CHECK([[bindings objectAtIndex:3] isUsed] && [[reflection.arguments objectAtIndex:3] isActive]);
  CHECK(![[bindings objectAtIndex:5] isUsed] && ![[reflection.arguments objectAtIndex:5] isActive]);
  CHECK_EQ([[bindings objectAtIndex:0] bufferDataType], MTLDataTypeFloat4x3);
  CHECK([[bindings objectAtIndex:0] bufferStructType] == nil);
  CHECK_EQ([[bindings objectAtIndex:1] bufferDataType], MTLDataTypeArray);
  MTLArrayType* array = [[[bindings objectAtIndex:1] bufferPointerType] elementArrayType];
  CHECK_EQ([array arrayLength], NSUInteger(5));
  CHECK_EQ([array stride], NSUInteger(16));
  CHECK_EQ([array elementType], MTLDataTypeUInt3);
  CHECK_EQ([[bindings objectAtIndex:2] bufferDataType], MTLDataTypeUShort);
  MTLStructType* type = [[bindings objectAtIndex:3] bufferStructType];
  CHECK_EQ([[type memberByName:@"h"] dataType], MTLDataTypeHalf4);
  CHECK_EQ([[type memberByName:@"x"] offset], NSUInteger(16));
  CHECK_EQ([[[type memberByName:@"y"] arrayType] stride], NSUInteger(12));
  CHECK_EQ([[type memberByName:@"mode"] dataType], MTLDataTypeUShort);
  CHECK_EQ([[type memberByName:@"bits"] dataType], MTLDataTypeNone);
}

// More kernels than the compiler makes at once: each gets its code with its pipeline.
TEST(validation_kernels_are_compiled_when_a_pipeline_asks) {
  NSMutableString* text =
      [NSMutableString stringWithString:@"#include <metal_stdlib>\n"
                                         "using namespace metal;\n"
                                         "constant int c [[function_constant(0)]];\n"];
  constexpr int kKernels = 40;
  for (int n = 0; n < kKernels; ++n) {
    [text
        appendFormat:
            @"kernel void k%d(device int* x [[buffer(3)]], threadgroup int* t [[threadgroup(0)]],\n"
             "                uint i [[thread_position_in_grid]]) {\n"
             "  t[i] = %d + c;\n"
             "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
             "  x[i] = t[i ^ 1] + i;\n"
             "}\n",
            n, 100 * n];
  }
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:text options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  CHECK_EQ([[library functionNames] count], NSUInteger(kKernels));
  MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  int seven = 7;
  [values setConstantValue:&seven type:MTLDataTypeInt atIndex:0];
  id<MTLBuffer> buffer = Buffer(4 * 8);
  id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
  // Out of order, one twice, and one that the call before it brought along.
  for (int n : {31, 3, 3, 39, 0, 12, 13}) {
    id<MTLFunction> function = [[library newFunctionWithName:[NSString stringWithFormat:@"k%d", n]
                                              constantValues:values
                                                       error:&error] autorelease];
    CHECK_EQ(Message(error), "(nil)");
    MTLAutoreleasedComputePipelineReflection reflection = nil;
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function
                                               options:MTLPipelineOptionBindingInfo
                                            reflection:&reflection
                                                 error:&error] autorelease];
    CHECK_EQ(Message(error), "(nil)");
    CHECK_EQ([[reflection bindings] count], NSUInteger(2));
    CHECK_EQ([[[reflection bindings] objectAtIndex:0] index], NSUInteger(3));
    id<MTLCommandBuffer> commands = queue.commandBuffer;
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:state];
    [encoder setBuffer:buffer offset:0 atIndex:3];
    [encoder setThreadgroupMemoryLength:32 atIndex:0];
    [encoder dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK_EQ(Message(commands.error), "(nil)");
    for (int i = 0; i < 8; ++i) CHECK_EQ(Contents<int>(buffer)[i], 100 * n + 7 + i);
  }
  // A library that begins now has from the beginning the code made for this one.
  id<MTLLibrary> later = [[Device() newLibraryWithSource:text options:nil
                                                   error:&error] autorelease];
  id<MTLFunction> function = [[later newFunctionWithName:@"k31" constantValues:values
                                                   error:&error] autorelease];
  CHECK([[Device() newComputePipelineStateWithFunction:function error:&error] autorelease] != nil);
}

TEST(source_pipelines_of_one_library_are_made_by_several_threads) {
  NSMutableString* text = [NSMutableString string];
  for (int n = 0; n < 24; ++n)
    [text appendFormat:@"kernel void k%d(device int* x) { x[0] = %d; }\n", n, n];
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:text options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      @autoreleasepool {
        for (int n : {t, 20}) {
          id<MTLFunction> function =
              [[library newFunctionWithName:[NSString stringWithFormat:@"k%d", n]] autorelease];
          NSError* wrong = nil;
          made += [[Device() newComputePipelineStateWithFunction:function
                                                           error:&wrong] autorelease] != nil;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(made.load(), 4);
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
  CHECK_CONTAINS(Message(error), "offset 400 (index 100) of buffer(0) 'x', which has 400 bytes");
}

namespace {

NSString* const kTouching =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "kernel void touch(device float* x [[buffer(0)]], constant int& how [[buffer(1)]],\n"
     "                  threadgroup float* a [[threadgroup(0)]], threadgroup float* b "
     "[[threadgroup(1)]],\n"
     "                  threadgroup float4& c [[threadgroup(2)]],\n"
     "                  uint i [[thread_index_in_threadgroup]]) {\n"
     "  a[i] = x[i];\n"
     "  if (how == 1) b[i] = a[i];\n"
     "  if (how == 4) c.x = a[i];\n"
     "  if (how == 5) a[i] = c.y;\n"
     "  if (how == 2) x[1ul << 44] = 1;\n"
     "  if (how == 3) a[0] = x[-(1l << 40)];\n"
     "#ifdef BARRIER\n"
     "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "#endif\n"
     "  x[i] = a[i] + 1;\n"
     "}\n";

}  // namespace

// Kernels that run as a loop, and those that run on fibers.
TEST(memory_that_is_not_there_is_an_error_where_it_is_touched) {
  if (harness::Validating()) return;  // there the encoder asks for the length
#if __has_feature(thread_sanitizer)
  return;  // it calls the handler itself, and takes one that is left by a jump for one that still
           // runs
#endif
  for (bool barrier : {false, true}) {
    MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
    if (barrier) {
      options.preprocessorMacros = [NSDictionary dictionaryWithObject:@"1" forKey:@"BARRIER"];
    }
    NSError* error = nil;
    id<MTLLibrary> library = [[Device() newLibraryWithSource:kTouching options:options
                                                       error:&error] autorelease];
    CHECK_EQ(Message(error), "(nil)");
    id<MTLFunction> function = [[library newFunctionWithName:@"touch"] autorelease];
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
    id<MTLBuffer> x = Buffer(400);
    id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
    float expected = 0;
    // All given to the queue before the first has run: each fails, or runs, alone.
    const int order[] = {0, 1, 0, 2, 3, 0, 1, 4, 0, 5, 0};
    NSMutableArray* all = [NSMutableArray array];
    for (int how : order) {
      id<MTLCommandBuffer> commands = queue.commandBuffer;
      id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
      [encoder setComputePipelineState:state];
      [encoder setBuffer:x offset:0 atIndex:0];
      [encoder setBytes:&how length:sizeof how atIndex:1];
      [encoder setThreadgroupMemoryLength:400 atIndex:0];
      if (how >= 4) [encoder setThreadgroupMemoryLength:400 atIndex:1];
      [encoder dispatchThreads:MTLSizeMake(100, 1, 1) threadsPerThreadgroup:MTLSizeMake(100, 1, 1)];
      [encoder endEncoding];
      [commands commit];
      [all addObject:commands];
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; ++i) {
      id<MTLCommandBuffer> commands = [all objectAtIndex:i];
      [commands waitUntilCompleted];
      if (order[i] == 0) {
        CHECK(commands.error == nil);
        ++expected;
        continue;
      }
      CHECK_EQ([commands.error code], NSInteger(MTLCommandBufferErrorPageFault));
      CHECK_CONTAINS(Message(commands.error), "[touch] access to an address ");
      const char* why = order[i] == 1   ? "threadgroup(1) 'b' has no length"
                        : order[i] >= 4 ? "threadgroup(2) 'c' has no length"
                                        : "METAL_DEVICE_WRAPPER_TYPE=1";
      CHECK_CONTAINS(Message(commands.error), why);
    }
    // Where a kernel fails, threads before it may have run; the last one never does.
    CHECK_EQ(Contents<float>(x)[99], expected);
  }
}

// Metal 3's direct form: the host writes addresses and values into a struct of its own. Under
// validation, too, whose checks know of bound buffers.
TEST(validation_takes_addresses_in_argument_buffers) {
  NSString* source = @"#include <metal_stdlib>\n"
                      "using namespace metal;\n"
                      "struct Row { device const float* in [[id(0)]]; uint count [[id(1)]]; };\n"
                      "struct Arguments { device float* out [[id(0)]]; float factor [[id(1)]]; Row "
                      "rows[2] [[id(2)]]; };\n"
                      "kernel void scale(constant Arguments& a [[buffer(3)]], uint i "
                      "[[thread_position_in_grid]]) {\n"
                      "  float sum = 0;\n"
                      "  for (constant Row& row : a.rows) if (i < row.count) sum += row.in[i];\n"
                      "  a.out[i] = sum * a.factor;\n"
                      "}\n";
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:source options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function = [[library newFunctionWithName:@"scale"] autorelease];
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  struct Row {
    uint64_t in;
    uint32_t count;
  };
  struct Arguments {
    uint64_t out;
    float factor;
    Row rows[2];
  };
  id<MTLBuffer> first = Buffer(400), second = Buffer(400), out = Buffer(400);
  id<MTLBuffer> arguments = Buffer(sizeof(Arguments));
  for (int i = 0; i < 100; ++i) {
    Contents<float>(first)[i] = float(i);
    Contents<float>(second)[i] = 1000;
  }
  *Contents<Arguments>(arguments) = {
      out.gpuAddress, 2, {{first.gpuAddress, 100}, {second.gpuAddress + 40, 50}}};
  NSError* failure = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:state];
    [encoder setBuffer:arguments offset:0 atIndex:3];
    const id<MTLResource> inputs[] = {first, second};
    [encoder useResources:inputs count:2 usage:MTLResourceUsageRead];
    [encoder useResource:out usage:MTLResourceUsageWrite];
    [encoder dispatchThreads:MTLSizeMake(100, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
  });
  CHECK_EQ(Message(failure), "(nil)");
  CHECK_EQ(Contents<float>(out)[49], 2098.0f);
  CHECK_EQ(Contents<float>(out)[50], 100.0f);
}
