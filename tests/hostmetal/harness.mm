// Runs the cases; the fixture's folder comes from HOSTMETAL_FIXTURES.
#include "tests/hostmetal/harness.h"

#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <atomic>

#ifdef HOSTMETAL_COUNT_OBJECTS
extern "C" long hostmetal_live_objects(void);
#else
static long hostmetal_live_objects() { return 0; }
#endif

namespace harness {
namespace {

std::atomic<int> failures{0};

// Objects that live as long as the process are made before any is counted.
void MakeSingletons() {
  @autoreleasepool {
    Library();
    dispatch_get_global_queue(0, 0);
    dispatch_get_main_queue();
    (void)DISPATCH_QUEUE_CONCURRENT;
#ifdef HOSTMETAL_COUNT_OBJECTS
    // Levels are made by shaders that are compiled once per device, which would take each process half a
    // second.
    MTLTextureDescriptor* wanted =
        [MTLTextureDescriptor texture2DDescriptorWithPixelFormat:MTLPixelFormatR32Float
                                                           width:2
                                                          height:2
                                                       mipmapped:YES];
    id<MTLTexture> texture = [[Device() newTextureWithDescriptor:wanted] autorelease];
    id<MTLCommandBuffer> commands = [Queue() commandBuffer];
    id<MTLBlitCommandEncoder> blit = [commands blitCommandEncoder];
    [blit generateMipmapsForTexture:texture];
    [blit endEncoding];
    Finish(commands);
#endif
  }
#ifdef HOSTMETAL_COUNT_OBJECTS
  // Queue threads let go of a finished command buffer a moment later.
  for (long seen = -1; seen != hostmetal_live_objects(); usleep(100000)) {
    seen = hostmetal_live_objects();
  }
#endif
}

// The objects that a case leaves behind. Queue threads let go of a finished command buffer a moment
// after its waiters have woken, and a case may not wait for all of its command buffers.
struct Left {
  long objects = hostmetal_live_objects();
  NSUInteger bytes = [Device() currentAllocatedSize];
  bool operator==(const Left& other) const {
    return objects == other.objects && bytes == other.bytes;
  }
};

void CheckLeaks(const char* name, const Left& before) {
  for (int i = 0; i < 2000 && !(Left() == before); ++i) usleep(1000);
  Left now;
  Equal(now.objects, before.objects, "live objects after the case", name, 0);
  Equal(now.bytes, before.bytes, "bytes of live buffers after the case", name, 0);
}

}  // namespace

std::vector<Case>& Cases() {
  static auto* cases = new std::vector<Case>;
  return *cases;
}

void Fail(const char* file, int line, const std::string& what) {
  const char* slash = strrchr(file, '/');
  printf("  %s:%d: %s\n", slash ? slash + 1 : file, line, what.c_str());
  ++failures;
}

id<MTLDevice> Device() {
  static id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  return device;
}

std::string FixturePath(const char* name) {
  const char* folder = getenv("HOSTMETAL_FIXTURES");
  return std::string(folder ? folder : "build/tests/hostmetal") + "/" + name;
}

NSString* LibraryPath() {
  return [NSString stringWithUTF8String:FixturePath("fixture.metallib").c_str()];
}

id<MTLLibrary> Library() {
  static id<MTLLibrary> library = [] {
    NSError* error = nil;
    id<MTLLibrary> made = [Device() newLibraryWithFile:LibraryPath() error:&error];
    if (!made) {
      fprintf(stderr, "fixture: %s\n", Message(error).c_str());
      exit(2);
    }
    return made;
  }();
  return library;
}

id<MTLComputePipelineState> Pipeline(const char* name) {
  NSError* error = nil;
  id<MTLFunction> function =
      [[Library() newFunctionWithName:[NSString stringWithUTF8String:name]] autorelease];
  id<MTLComputePipelineState> pipeline = [Device() newComputePipelineStateWithFunction:function
                                                                                 error:&error];
  if (!pipeline) {
    fprintf(stderr, "pipeline %s: %s\n", name, Message(error).c_str());
    exit(2);
  }
  return [pipeline autorelease];
}

id<MTLBuffer> Buffer(NSUInteger bytes) {
  return [[Device() newBufferWithLength:bytes options:MTLResourceStorageModeShared] autorelease];
}

bool Validating() {
  const char* wrapper = getenv("METAL_DEVICE_WRAPPER_TYPE");
  return wrapper && atoi(wrapper);
}

std::string Text(NSString* text) { return text ? [text UTF8String] : "(nil)"; }

id<MTLCommandQueue> Queue() { return [[Device() newCommandQueue] autorelease]; }

MTLSize Size(NSUInteger x, NSUInteger y, NSUInteger z) { return MTLSizeMake(x, y, z); }

void Append(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> append, id<MTLBuffer> log,
            uint32_t value) {
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:append];
  [encoder setBuffer:log offset:0 atIndex:0];
  [encoder setBytes:&value length:4 atIndex:1];
  [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
  [encoder endEncoding];
}

void Finish(id<MTLCommandBuffer> commands) {
  [commands commit];
  [commands waitUntilCompleted];
}

std::string Message(NSError* error) { return Text([error localizedDescription]); }

}  // namespace harness

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  int failed = 0;
  int ran = 0;
  harness::MakeSingletons();
  for (const harness::Case& one : harness::Cases()) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted |= strcmp(argv[i], one.name) == 0;
    if (!wanted) continue;
    int before = harness::failures;
    harness::Left left;
    @autoreleasepool {
      one.run();
    }
    harness::CheckLeaks(one.name, left);
    bool ok = harness::failures == before;
    printf("%s %s\n", ok ? "ok  " : "FAIL", one.name);
    failed += !ok;
    ++ran;
  }
  if (!ran) {
    printf("no case of that name\n");
    return 2;
  }
  return failed != 0;
}
