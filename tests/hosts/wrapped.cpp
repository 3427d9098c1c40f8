// A host in C++ over a wrapper of messages; prints a line a check.
#include <TargetConditionals.h>

#include "wrapper.h"

extern "C" void* MTLCreateSystemDefaultDevice();
extern "C" void* objc_autoreleasePoolPush();
extern "C" void objc_autoreleasePoolPop(void* pool);
extern "C" void* objc_retain(void* object);
extern "C" void objc_release(void* object);
// A constant that is not there is null, not an error.
extern "C" const void* const NSNoSuchConstantOfAnyRelease __attribute__((weak_import));
extern "C" const void* const NSLocalizedDescriptionKey __attribute__((weak_import));

struct Size {
  unsigned long width, height, depth;
};

static void Check(const char* what, bool ok) { printf("%s %s\n", ok ? "ok" : "WRONG", what); }

int main() {
  void* pool = Object::Send<void*>(Object::Send<void*>(k_NSAutoreleasePool, k_alloc), k_init);
  void* device = MTLCreateSystemDefaultDevice();
  void* error = nullptr;
  const void* source = CFSTR(
      "kernel void scale(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] "
      "*= 3; }");
  void* library = Object::Send<void*>(device, k_newLibrary, source, (void*)nullptr, &error);
  // metal-cpp lists devices where this is so.
  Check("the system is macOS", TARGET_OS_OSX && TARGET_OS_MAC && !TARGET_OS_IPHONE);
  Check("a source compiles", library != nullptr);
  void* function = Object::Send<void*>(library, k_newFunction, CFSTR("scale"));
  void* pipeline = Object::Send<void*>(device, k_newPipeline, function, &error);
  Check("a pipeline is made", pipeline != nullptr);
  void* buffer = Object::Send<void*>(device, k_newBuffer, 400ul, 0ul);
  auto* x = Object::Send<float*>(buffer, k_contents);
  for (int i = 0; i < 100; ++i) x[i] = i;
  void* commands = Object::Send<void*>(Object::Send<void*>(device, k_newQueue), k_commandBuffer);
  bool called = false;
  std::function<void(void*)> handler = [&](void* done) { called = done == commands; };
  Object::Send<void>(commands, k_addHandler, ^(void* done) {
    handler(done);
  });
  void* encoder = Object::Send<void*>(commands, k_encoder);
  Object::Send<void>(encoder, k_setPipeline, pipeline);
  Object::Send<void>(encoder, k_setBuffer, buffer, 0ul, 0ul);
  Object::Send<void>(encoder, k_dispatch, Size{100, 1, 1}, Size{32, 1, 1});
  Object::Send<void>(encoder, k_endEncoding);
  Object::Send<void>(commands, k_commit);
  Object::Send<void>(commands, k_wait);
  Check("a dispatch runs", x[99] == 297);
  Check("a block is called", called);
  Check("a double comes back", Object::Send<double>(commands, k_endTime) > 0);
  Size limit = Object::Send<Size>(device, k_maxThreads);
  Check("a struct comes back", limit.width == 1024 && limit.depth == 1024);
  Check("a message to nil is nil",
        Object::Send<void*>((void*)nullptr, k_commandBuffer) == nullptr &&
            Object::Send<double>((void*)nullptr, k_endTime) == 0);
  void* bad = Object::Send<void*>(device, k_newLibrary, (const void*)CFSTR("kernel void"),
                                  (void*)nullptr, &error);
  const void* domain = Object::Send<void*>(error, k_domain);
  Check("an error says what",
        !bad && Object::Send<bool>(domain, k_isEqual, CFSTR("MTLLibraryErrorDomain")) &&
            Object::Send<long>(error, k_code) == 3);
  // The compiler lays these down as UTF-16.
  const void* literal = CFSTR("gr\u00f6\u00dfe");
  const void* made = Object::Send<void*>(k_NSString, k_string, "gr\u00f6\u00dfe");
  Check("a literal has its characters", Object::Send<unsigned long>(literal, k_length) == 5 &&
                                            Object::Send<bool>(literal, k_isEqual, made));
  for (int i = 0; i < 3; ++i) Object::Send<void>(literal, k_release);
  Check("a literal is never freed", Object::Send<bool>(made, k_isEqual, literal));
  unsigned long count = Object::Send<unsigned long>(buffer, k_retainCount);
  void* inner = objc_autoreleasePoolPush();
  objc_retain(buffer);
  Check("retain counts", Object::Send<unsigned long>(buffer, k_retainCount) == count + 1);
  objc_release(buffer);
  objc_autoreleasePoolPop(inner);
  Check("release counts", Object::Send<unsigned long>(buffer, k_retainCount) == count);
  Check("weak constants",
        &NSNoSuchConstantOfAnyRelease == nullptr && &NSLocalizedDescriptionKey != nullptr);
  Object::Send<void>(pool, k_release);
}
