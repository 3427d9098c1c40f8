// <metal_atomic>. Device atomics are the CPU's own; threadgroup atomics need none, as a threadgroup
// runs on one thread.
#pragma once

#include "vec.h"

namespace metal {

enum memory_order {
  memory_order_relaxed = 0,
  memory_order_acquire = 2,
  memory_order_release = 3,
  memory_order_acq_rel = 4,
  memory_order_seq_cst = 5,
};
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }
enum thread_scope : int {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device,
};
#define __METAL_MEMORY_SCOPE_SYSTEM__ 4
}  // namespace metal
// Other devices and the host, too. MSL has no name for it, and programs define this one in namespace
// metal, which hides names that only a directive brings there.
namespace _msl_scopes {
constexpr metal::thread_scope thread_scope_system =
    metal::thread_scope(__METAL_MEMORY_SCOPE_SYSTEM__);
}
namespace metal {
using namespace _msl_scopes;

template <class T>
struct atomic {
  static_assert(is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, bool> ||
                    is_same_v<T, float> || is_same_v<T, ulong>,
                "atomic<T> needs T to be int, uint, bool, float or ulong");
  T _value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;

}  // namespace metal
namespace _msl {
#ifdef _MSL_CHECKS
extern "C" __attribute__((visibility("hidden"))) void _msl_checked_fence(int order, int scope);
#endif
inline void fence(metal::memory_order order, metal::thread_scope scope) {
  if (order == metal::memory_order_relaxed) return;
#ifdef _MSL_CHECKS
  _msl_checked_fence(order, scope);
#endif
#if defined(__NVPTX__)  // clang 19 selects no instruction for its own fence
#define MSL_FENCE(scope)                                         \
  if (order == metal::memory_order_seq_cst) {                    \
    __asm__ volatile("fence.sc." scope ";" : : : "memory");      \
  } else {                                                       \
    __asm__ volatile("fence.acq_rel." scope ";" : : : "memory"); \
  }
  if (scope == metal::thread_scope_system) {
    MSL_FENCE("sys")
  } else if (scope == metal::thread_scope_device) {
    MSL_FENCE("gpu")
  } else {
    MSL_FENCE("cta")
  }
#undef MSL_FENCE
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
// Around an atomic access: MSL's own are relaxed.
struct Ordered {
  const metal::memory_order order;
  explicit Ordered(metal::memory_order o) : order(o) { fence(order, metal::thread_scope_device); }
  ~Ordered() { fence(order, metal::thread_scope_device); }
};
}  // namespace _msl
namespace metal {

// The value parameters are not deduced: atomic_store_explicit(&counter, 0, ...) converts its 0.
#define MSL_VALUE typename type_identity<T>::type

#define MSL_ATOMICS(SPACE, UPDATE)                                                            \
  template <class T>                                                                          \
  inline void atomic_store_explicit(volatile SPACE atomic<T>* object, MSL_VALUE value,        \
                                    memory_order order) {                                     \
    const _msl::Ordered ordered(order);                                                       \
    __atomic_store((T*)&object->_value, &value, __ATOMIC_RELAXED);                            \
  }                                                                                           \
  template <class T>                                                                          \
  inline T atomic_load_explicit(const volatile SPACE atomic<T>* object, memory_order order) { \
    const _msl::Ordered ordered(order);                                                       \
    T value;                                                                                  \
    __atomic_load((T*)&object->_value, &value, __ATOMIC_RELAXED);                             \
    return value;                                                                             \
  }                                                                                           \
  template <class T>                                                                          \
  inline T atomic_exchange_explicit(volatile SPACE atomic<T>* object, MSL_VALUE value,        \
                                    memory_order order) {                                     \
    const _msl::Ordered ordered(order);                                                       \
    UPDATE(T, value)                                                                          \
  }                                                                                           \
  template <class T>                                                                          \
  inline bool atomic_compare_exchange_weak_explicit(volatile SPACE atomic<T>* object,         \
                                                    thread T* expected, MSL_VALUE desired,    \
                                                    memory_order order, memory_order) {       \
    const _msl::Ordered ordered(order);                                                       \
    return __atomic_compare_exchange((T*)&object->_value, expected, &desired, false,          \
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED);                     \
  }                                                                                           \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, add, old + value, !is_same_v<T, bool>)                      \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, sub, old - value, !is_same_v<T, bool>)                      \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, max, old > value ? old : value,                             \
                   is_integral_v<T> && !is_same_v<T, bool>)                                   \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, min, old < value ? old : value,                             \
                   is_integral_v<T> && !is_same_v<T, bool>)                                   \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, and, T(old& value), is_integral_v<T>)                       \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, or, T(old | value), is_integral_v<T>)                       \
  MSL_ATOMIC_FETCH(SPACE, UPDATE, xor, T(old ^ value), is_integral_v<T>)                      \
  /* MSL 3.1's 64-bit atomics: no result. */                                                  \
  inline void atomic_max_explicit(volatile SPACE atomic<ulong>* object, ulong value,          \
                                  memory_order order) {                                       \
    atomic_fetch_max_explicit(object, value, order);                                          \
  }                                                                                           \
  inline void atomic_min_explicit(volatile SPACE atomic<ulong>* object, ulong value,          \
                                  memory_order order) {                                       \
    atomic_fetch_min_explicit(object, value, order);                                          \
  }

#define MSL_ATOMIC_FETCH(SPACE, UPDATE, name, expr, ...)                                     \
  template <class T, class = enable_if_t<(__VA_ARGS__)>>                                     \
  inline T atomic_fetch_##name##_explicit(volatile SPACE atomic<T>* object, MSL_VALUE value, \
                                          memory_order order) {                              \
    const _msl::Ordered ordered(order);                                                      \
    UPDATE(T, expr)                                                                          \
  }

#define MSL_UPDATE_ATOMIC(T, expr)                                                           \
  T* p = (T*)&object->_value;                                                                \
  T old;                                                                                     \
  __atomic_load(p, &old, __ATOMIC_RELAXED);                                                  \
  while (true) {                                                                             \
    T next = (expr);                                                                         \
    if (__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
      return old;                                                                            \
  }
#define MSL_UPDATE_PLAIN(T, expr) \
  T* p = (T*)&object->_value;     \
  const T old = *p;               \
  *p = (expr);                    \
  return old;

#if defined(__NVPTX__)  // a warp's lanes run together: threadgroup atomics are real ones
#include "gpu_atomic.h"
#else
MSL_ATOMICS(device, MSL_UPDATE_ATOMIC)
#ifdef _MSL_CHECKS  // other threads may run between two accesses
MSL_ATOMICS(threadgroup, MSL_UPDATE_ATOMIC)
#else
MSL_ATOMICS(threadgroup, MSL_UPDATE_PLAIN)
#endif

// The integer additions as one instruction; the loop above remains for float, min and max.
#define MSL_ATOMIC_NATIVE(T)                                                     \
  inline T atomic_fetch_add_explicit(volatile device atomic<T>* object, T value, \
                                     memory_order order) {                       \
    const _msl::Ordered ordered(order);                                          \
    return __atomic_fetch_add((T*)&object->_value, value, __ATOMIC_RELAXED);     \
  }                                                                              \
  inline T atomic_fetch_sub_explicit(volatile device atomic<T>* object, T value, \
                                     memory_order order) {                       \
    const _msl::Ordered ordered(order);                                          \
    return __atomic_fetch_sub((T*)&object->_value, value, __ATOMIC_RELAXED);     \
  }
MSL_ATOMIC_NATIVE(int)
MSL_ATOMIC_NATIVE(uint)
MSL_ATOMIC_NATIVE(ulong)
#endif  // __NVPTX__

inline void atomic_thread_fence(mem_flags, memory_order order,
                                thread_scope scope = thread_scope_device) {
  _msl::fence(order, scope);
}

}  // namespace metal

// Adds to neighbouring floats, in one instruction where the GPU has it: then
// __HAVE_ATOMIC_FLOAT_VECTOR__ is defined. The address is a multiple of their size.
namespace _msl {
inline void atomic_add2(device metal::atomic<float>* sums, float a, float b) {
#if defined(__NVPTX__) && _MSL_SM >= 90
  __asm__ volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(sums), "f"(a), "f"(b)
                   : "memory");
#else
  metal::atomic_fetch_add_explicit(sums, a, metal::memory_order_relaxed);
  metal::atomic_fetch_add_explicit(sums + 1, b, metal::memory_order_relaxed);
#endif
}
inline void atomic_add4(device metal::atomic<float>* sums, float a, float b, float c, float d) {
#if defined(__NVPTX__) && _MSL_SM >= 90
  __asm__ volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums), "f"(a),
                   "f"(b), "f"(c), "f"(d)
                   : "memory");
#else
  atomic_add2(sums, a, b);
  atomic_add2(sums + 2, c, d);
#endif
}
}  // namespace _msl
