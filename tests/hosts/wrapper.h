// The parts of a C++ wrapper of Metal: classes without members whose methods are messages, selectors
// and classes looked up before main.
#ifndef TESTS_HOSTS_WRAPPER_H_
#define TESTS_HOSTS_WRAPPER_H_

#include <CoreFoundation/CoreFoundation.h>
#include <objc/message.h>
#include <objc/runtime.h>

#include <functional>
#include <type_traits>

struct Object {
  template <typename R, typename... A>
  static R Send(const void* self, SEL selector, A... arguments) {
    if constexpr (std::is_floating_point<R>::value) {
#ifdef __x86_64__
      return reinterpret_cast<R (*)(const void*, SEL, A...)>(objc_msgSend_fpret)(self, selector,
                                                                                 arguments...);
#else
      return reinterpret_cast<R (*)(const void*, SEL, A...)>(objc_msgSend)(self, selector,
                                                                           arguments...);
#endif
    } else if constexpr (NeedsStret<R>()) {
      R result;
#ifdef __x86_64__
      reinterpret_cast<void (*)(R*, const void*, SEL, A...)>(objc_msgSend_stret)(
          &result, self, selector, arguments...);
#endif
      return result;
    } else {
      return reinterpret_cast<R (*)(const void*, SEL, A...)>(objc_msgSend)(self, selector,
                                                                           arguments...);
    }
  }
  template <typename R>
  static constexpr bool NeedsStret() {
#ifdef __x86_64__
    if constexpr (!std::is_void<R>::value) return sizeof(R) > 16;
#endif
    return false;
  }
};

#define SELECTOR(name, text) inline const SEL k_##name = sel_registerName(text)
SELECTOR(alloc, "alloc");
SELECTOR(init, "init");
SELECTOR(release, "release");
SELECTOR(retainCount, "retainCount");
SELECTOR(UTF8String, "UTF8String");
SELECTOR(length, "length");
SELECTOR(newLibrary, "newLibraryWithSource:options:error:");
SELECTOR(newFunction, "newFunctionWithName:");
SELECTOR(newPipeline, "newComputePipelineStateWithFunction:error:");
SELECTOR(newBuffer, "newBufferWithLength:options:");
SELECTOR(contents, "contents");
SELECTOR(newQueue, "newCommandQueue");
SELECTOR(commandBuffer, "commandBuffer");
SELECTOR(encoder, "computeCommandEncoder");
SELECTOR(setPipeline, "setComputePipelineState:");
SELECTOR(setBuffer, "setBuffer:offset:atIndex:");
SELECTOR(dispatch, "dispatchThreads:threadsPerThreadgroup:");
SELECTOR(endEncoding, "endEncoding");
SELECTOR(addHandler, "addCompletedHandler:");
SELECTOR(commit, "commit");
SELECTOR(wait, "waitUntilCompleted");
SELECTOR(endTime, "GPUEndTime");
SELECTOR(maxThreads, "maxThreadsPerThreadgroup");
SELECTOR(domain, "domain");
SELECTOR(code, "code");
SELECTOR(isEqual, "isEqualToString:");
SELECTOR(string, "stringWithUTF8String:");
#undef SELECTOR
inline const void* const k_NSString = objc_lookUpClass("NSString");
inline const void* const k_NSAutoreleasePool = objc_lookUpClass("NSAutoreleasePool");

#endif  // TESTS_HOSTS_WRAPPER_H_
