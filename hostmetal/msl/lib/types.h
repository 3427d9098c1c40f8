// Address spaces, scalar types and the attributes behind MSL's keywords.
// Address spaces are SYCL's: clang checks conversions between them like Apple's compiler, lets the
// unqualified `this` and `const T&` of compiler-made copies accept all of them, and on x86 all of
// them are address space 0 in the code. `thread` has no type of its own (locals have none): the
// driver finds conversions to it in the syntax tree.
#pragma once

#include "../metallib_abi.h"

#define device __attribute__((opencl_global_device))
// On a GPU constant memory is any: an argument by value lies with the kernel's parameters, another
// in global memory. The optimiser finds out which.
#if defined(__NVPTX__)
#define _MSL_CONSTANT_SPACE __attribute__((opencl_private))
#else
#define _MSL_CONSTANT_SPACE __attribute__((opencl_global_host))
#endif
#define constant const _MSL_CONSTANT_SPACE
#define threadgroup __attribute__((opencl_local))
#define thread
#define kernel __attribute__((annotate("msl.kernel")))
#define vertex __attribute__((annotate("msl.vertex")))
#define fragment __attribute__((annotate("msl.fragment")))
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST __attribute__((const))
#define METAL_PURE __attribute__((pure))

// The driver's replacements of [[attributes]] and of threadgroup variables.
#define _MSL_STR_(...) #__VA_ARGS__
#define _MSL_STR(...) _MSL_STR_(__VA_ARGS__)
#define _MSL_CAT_(a, b) a##b
#define _MSL_CAT(a, b) _MSL_CAT_(a, b)
#define _MSL_A(...) __attribute__((annotate("msl." __VA_ARGS__)))
#define _MSL_INSTANCE_(id, name, ...)                \
  static constexpr auto _MSL_CAT(_msl_instance_, id) \
      __attribute__((annotate("msl.host_name=" name), unused)) = __VA_ARGS__
#define _MSL_INSTANCE(name, ...) _MSL_INSTANCE_(__COUNTER__, name, __VA_ARGS__)
// A worker runs one threadgroup at a time, all its fibers on one thread: threadgroup memory is that
// thread's. `used`: other fibers write to it behind a barrier, where the optimiser sees no way to.
#if defined(__NVPTX__)
#define _MSL_THREADGROUP static __attribute__((annotate("msl.threadgroup"))) threadgroup
#else
#define _MSL_THREADGROUP \
  static __thread __attribute__((annotate("msl.threadgroup"), used)) threadgroup
#endif
// A function constant: declared const, so that loads leave loops; the value lies in the wrapper's
// assembly, followed at +16 by whether it is defined.
#if defined(__NVPTX__)  // a variable of the module, to which the runtime gives its value
#define _MSL_FUNCTION_CONSTANT extern
#else
#define _MSL_FUNCTION_CONSTANT extern __thread
#endif
#define _MSL_FUNCTION_CONSTANT_LABEL(name) __asm__("_msl_fc_" _MSL_STR(name))

typedef _Float16 half;
typedef signed char _msl_schar;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

// 1.0H and 1.0bf, which C++ reserves, are rewritten by the driver.
constexpr half operator""h(long double v) { return half(v); }

// A text, which MSL keeps in constant memory; the driver writes the suffix behind it.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgnu-string-literal-operator-template"
namespace _msl {
template <class C, C... c>
struct Text {
  static constexpr constant C value[] = {c..., C(0)};
};
}  // namespace _msl
template <class C, C... c>
constexpr constant C* operator""_msl_text() {
  return _msl::Text<C, c...>::value;
}
#pragma clang diagnostic pop

namespace metal {
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
}  // namespace metal

namespace _msl {
inline __attribute__((always_inline)) bool constant_defined(const volatile void* value) {
  // The flag lies behind the object, where the optimiser must not look.
#if defined(__NVPTX__)
  __asm__("" : "+l"(value));
#else
  __asm__("" : "+r"(value));
#endif
  return static_cast<const volatile unsigned char*>(value)[16] != 0;
}
}  // namespace _msl
#define is_function_constant_defined(name) \
  _msl::constant_defined(reinterpret_cast<const volatile void*>((const volatile char*)&name))

// Apply M to every scalar type of a class.
#define MSL_FLOATS(M) M(float) M(half) M(bfloat)
#define MSL_INTS(M) \
  M(char) M(_msl_schar) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define MSL_INTS_BUT_SCHAR(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong)
#define MSL_SCALARS(M) MSL_FLOATS(M) MSL_INTS(M) M(bool)
