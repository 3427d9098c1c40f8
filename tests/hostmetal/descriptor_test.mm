// Descriptors and managers around queues, functions, pipelines and captures; types shared with
// shaders.
#include <mach/mach_time.h>
#include <os/lock.h>
#include <simd/simd.h>

#include "tests/hostmetal/harness.h"

using harness::Device;
using harness::Library;
using harness::Text;

TEST(queue_from_descriptor) {
  MTLCommandQueueDescriptor* descriptor = [[[MTLCommandQueueDescriptor alloc] init] autorelease];
  CHECK_EQ(descriptor.maxCommandBufferCount, NSUInteger(64));
  descriptor.maxCommandBufferCount = 2;
  MTLCommandQueueDescriptor* copy = [[descriptor copy] autorelease];
  CHECK_EQ(copy.maxCommandBufferCount, NSUInteger(2));
  CHECK([[Device() newCommandQueueWithDescriptor:descriptor] autorelease] != nil);
  descriptor.maxCommandBufferCount = 0;
  CHECK([Device() newCommandQueueWithDescriptor:descriptor] == nil);
}

TEST(function_from_descriptor) {
  MTLFunctionDescriptor* descriptor = [MTLFunctionDescriptor functionDescriptor];
  descriptor.name = @"add";
  descriptor.specializedName = @"add for me";
  NSError* error = nil;
  id<MTLFunction> function = [[Library() newFunctionWithDescriptor:descriptor
                                                             error:&error] autorelease];
  CHECK_EQ(Text(function.name), "add for me");
  CHECK_EQ(function.options, MTLFunctionOptionNone);
  CHECK_EQ(Library().type, MTLLibraryTypeExecutable);
  descriptor.name = @"no_such_function";
  CHECK([Library() newFunctionWithDescriptor:descriptor error:&error] == nil);
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorFunctionNotFound));
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  __block NSInteger code = 0;
  [Library() newFunctionWithDescriptor:descriptor
                     completionHandler:^(id<MTLFunction> none, NSError* why) {
                       code = none ? -1 : [why code];
                       dispatch_semaphore_signal(done);
                     }];
  dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
  dispatch_release(done);
  CHECK_EQ(code, NSInteger(MTLLibraryErrorFunctionNotFound));
}

TEST(pipeline_buffer_hints_are_kept) {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  CHECK_EQ([descriptor.buffers objectAtIndexedSubscript:3].mutability, MTLMutabilityDefault);
  [descriptor.buffers objectAtIndexedSubscript:3].mutability = MTLMutabilityImmutable;
  CHECK_EQ([descriptor.buffers objectAtIndexedSubscript:3].mutability, MTLMutabilityImmutable);
  [descriptor.buffers setObject:nil atIndexedSubscript:3];
  CHECK_EQ([descriptor.buffers objectAtIndexedSubscript:3].mutability, MTLMutabilityDefault);
  CHECK(!harness::Pipeline("add").supportIndirectCommandBuffers);
}

TEST(dynamic_libraries_are_refused) {
  CHECK(!Device().supportsDynamicLibraries);
  NSError* error = nil;
  CHECK([Device() newDynamicLibrary:harness::Library() error:&error] == nil);
  CHECK_EQ(harness::Text(error.domain), "MTLDynamicLibraryDomain");
  CHECK_EQ(error.code, NSInteger(MTLDynamicLibraryErrorUnsupported));
  CHECK_CONTAINS(harness::Message(error),
                 "[newDynamicLibrary] this device has no dynamic libraries");
  error = nil;
  NSURL* nowhere = [NSURL fileURLWithPath:@"/nowhere"];
  CHECK([Device() newDynamicLibraryWithURL:nowhere error:&error] == nil);
  CHECK_EQ(error.code, NSInteger(MTLDynamicLibraryErrorUnsupported));
  CHECK(harness::Library().installName == nil);

  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  options.installName = @"@loader_path/a.metallib";
  options.compileSymbolVisibility = MTLCompileSymbolVisibilityHidden;
  NSArray* libraries = [NSArray arrayWithObject:harness::Library()];
  options.libraries = libraries;
  MTLCompileOptions* copy = [[options copy] autorelease];
  CHECK_EQ(harness::Text(copy.installName), "@loader_path/a.metallib");
  CHECK_EQ(copy.compileSymbolVisibility, MTLCompileSymbolVisibilityHidden);
  CHECK([Device() newLibraryWithSource:@"" options:copy error:&error] == nil);
  CHECK_CONTAINS(harness::Message(error), "libraries has dynamic libraries");

  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = [[harness::Library() newFunctionWithName:@"add"] autorelease];
  descriptor.insertLibraries = libraries;
  MTLComputePipelineDescriptor* copied = [[descriptor copy] autorelease];
  CHECK([Device() newComputePipelineStateWithDescriptor:copied
                                                options:MTLPipelineOptionNone
                                             reflection:nil
                                                  error:&error] == nil);
  CHECK_CONTAINS(harness::Message(error), "preloadedLibraries has dynamic libraries");
  [copied reset];
  CHECK(copied.preloadedLibraries == nil);
}

TEST(compile_options_of_newer_names) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  CHECK_EQ(options.mathMode, MTLMathModeFast);
  options.mathMode = MTLMathModeSafe;
  CHECK(!options.fastMathEnabled);
  options.fastMathEnabled = YES;
  CHECK_EQ(options.mathMode, MTLMathModeFast);
  options.libraryType = MTLLibraryTypeDynamic;
  options.maxTotalThreadsPerThreadgroup = 128;
  MTLCompileOptions* copy = [[options copy] autorelease];
  CHECK_EQ(copy.maxTotalThreadsPerThreadgroup, NSUInteger(128));
  NSError* error = nil;
  CHECK([Device() newLibraryWithSource:@"" options:copy error:&error] == nil);
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorUnsupported));
}

TEST(copies_of_descriptors_say_the_same) {
  // Every property gets a number that is not its default.
  NSDictionary* const numbers = @{
    @"MTLTextureDescriptor" : @[
      @"textureType", @"pixelFormat", @"width", @"height", @"depth", @"mipmapLevelCount",
      @"sampleCount", @"arrayLength", @"resourceOptions", @"usage", @"allowGPUOptimizedContents",
      @"compressionType"
    ],
    @"MTLSamplerDescriptor" : @[
      @"minFilter", @"magFilter", @"mipFilter", @"maxAnisotropy", @"sAddressMode", @"tAddressMode",
      @"rAddressMode", @"borderColor", @"compareFunction", @"normalizedCoordinates", @"lodMinClamp",
      @"lodMaxClamp", @"supportArgumentBuffers"
    ],
    @"MTLHeapDescriptor" : @[ @"size", @"resourceOptions", @"type" ],
    @"MTLCommandBufferDescriptor" : @[ @"retainedReferences", @"errorOptions" ],
    @"MTLCommandQueueDescriptor" : @[ @"maxCommandBufferCount" ],
    @"MTLComputePassDescriptor" : @[ @"dispatchType" ],
    @"MTLComputePipelineDescriptor" : @[
      @"threadGroupSizeIsMultipleOfThreadExecutionWidth", @"maxTotalThreadsPerThreadgroup",
      @"supportIndirectCommandBuffers"
    ],
    @"MTLIndirectCommandBufferDescriptor" : @[
      @"commandTypes", @"inheritPipelineState", @"inheritBuffers", @"maxVertexBufferBindCount",
      @"maxFragmentBufferBindCount", @"maxKernelBufferBindCount",
      @"maxKernelThreadgroupMemoryBindCount"
    ],
    @"MTLPipelineBufferDescriptor" : @[ @"mutability" ],
    @"MTLCompileOptions" : @[
      @"mathMode", @"mathFloatingPointFunctions", @"libraryType", @"optimizationLevel",
      @"preserveInvariance", @"maxTotalThreadsPerThreadgroup", @"languageVersion",
      @"compileSymbolVisibility", @"allowReferencingUndefinedSymbols"
    ],
    @"MTLFunctionDescriptor" : @[ @"options" ],
  };
  for (NSString* name in numbers) {
    id descriptor = [[[NSClassFromString(name) alloc] init] autorelease];
    for (NSString* key in [numbers objectForKey:name]) {
      const int before = [[descriptor valueForKey:key] intValue];
      [descriptor setValue:@(before == 1 ? 0 : 1) forKey:key];
      id copy = [[descriptor copy] autorelease];
      if ([[copy valueForKey:key] intValue] == before ||
          ![[copy valueForKey:key] isEqual:[descriptor valueForKey:key]]) {
        harness::Fail(__FILE__, __LINE__,
                      Text(name) + " copies " + Text(key) + " as " +
                          Text([[copy valueForKey:key] description]));
      }
    }
  }
}

TEST(captures_are_refused) {
  MTLCaptureManager* manager = [MTLCaptureManager sharedCaptureManager];
  CHECK(![manager supportsDestination:MTLCaptureDestinationGPUTraceDocument]);
  MTLCaptureDescriptor* descriptor = [[[MTLCaptureDescriptor alloc] init] autorelease];
  descriptor.captureObject = Device();
  NSError* error = nil;
  CHECK(![manager startCaptureWithDescriptor:descriptor error:&error]);
  CHECK_EQ(Text([error domain]), "MTLCaptureErrorDomain");
  CHECK_EQ([error code], NSInteger(MTLCaptureErrorNotSupported));
  [manager startCaptureWithDevice:Device()];
  CHECK(!manager.isCapturing);
  id<MTLCommandQueue> queue = harness::Queue();
  id<MTLCaptureScope> scope = [[manager newCaptureScopeWithCommandQueue:queue] autorelease];
  CHECK(scope.device == Device() && scope.commandQueue == queue);
  scope.label = @"step";
  [scope beginScope];
  [scope endScope];
}

TEST(device_answers_the_rest) {
  CHECK([Device().architecture.name length] > 0);
  CHECK_EQ(Device().location, MTLDeviceLocationBuiltIn);
  CHECK(!Device().supportsDynamicLibraries && !Device().supportsRaytracing);
  CHECK([Device() supportsFamily:MTLGPUFamilyApple7] &&
        ![Device() supportsFamily:MTLGPUFamilyApple8]);
  CHECK([Device() supportsFeatureSet:MTLFeatureSet_macOS_GPUFamily2_v1]);
  CHECK(![Device() supportsFeatureSet:MTLFeatureSet(0)]);  // of iOS
  CHECK_EQ(Device().readWriteTextureSupport, MTLReadWriteTextureTier2);
  CHECK(Device().supports32BitFloatFiltering && !Device().supportsBCTextureCompression);
  CHECK([Device() supportsTextureSampleCount:1] && ![Device() supportsTextureSampleCount:4]);
  CHECK_EQ(Device().peerCount, 0u);
  CHECK(Device().maximumConcurrentCompilationTaskCount > 0);
  CHECK(!Device().shouldMaximizeConcurrentCompilation);
  Device().shouldMaximizeConcurrentCompilation = YES;
  CHECK(Device().shouldMaximizeConcurrentCompilation);
  Device().shouldMaximizeConcurrentCompilation = NO;
  MTLRegion region = MTLRegionMake2D(1, 2, 3, 4);
  CHECK_EQ(region.origin.y, NSUInteger(2));
  CHECK_EQ(region.size.depth, NSUInteger(1));
}

TEST(host_types_have_the_layout_of_shaders) {
  CHECK_EQ(sizeof(simd_float3), sizeof(simd_float4));
  CHECK_EQ(sizeof(simd_float4x4), size_t(64));
  CHECK_EQ(alignof(simd_packed_float4), alignof(float));
  simd::float3 a = simd_make_float3(1, 2, 2), b = {0, 1, 0};
  CHECK_EQ(simd_length(a), 3.0f);
  CHECK_EQ(simd_dot(a, b), 2.0f);
  CHECK_EQ(simd_cross(a, b).z, 1.0f);
  simd_float3x3 twice = {{{2, 0, 0}, {0, 2, 0}, {0, 0, 2}}};
  CHECK_EQ(simd_mul(twice, a).y, 4.0f);
}

TEST(clock_lock_and_queue_attributes) {
  mach_timebase_info_data_t base;
  mach_timebase_info(&base);
  CHECK_EQ(base.numer, base.denom);
  uint64_t begin = mach_absolute_time();
  CHECK(mach_absolute_time() >= begin);
  os_unfair_lock lock = OS_UNFAIR_LOCK_INIT;
  os_unfair_lock_lock(&lock);
  os_unfair_lock_unlock(&lock);
  CHECK(os_unfair_lock_trylock(&lock));
  os_unfair_lock_unlock(&lock);
  dispatch_queue_t queue = dispatch_queue_create(
      "high",
      dispatch_queue_attr_make_with_qos_class(DISPATCH_QUEUE_SERIAL, QOS_CLASS_USER_INITIATED, -1));
  __block int ran = 0;
  dispatch_sync(queue, ^{
    ++ran;
  });
  dispatch_queue_t pooled =
      dispatch_queue_create("pooled", DISPATCH_QUEUE_SERIAL_WITH_AUTORELEASE_POOL);
  dispatch_sync(pooled, ^{
    ++ran;
  });
  CHECK_EQ(ran, 2);
  dispatch_release(queue);
  dispatch_release(pooled);
}
