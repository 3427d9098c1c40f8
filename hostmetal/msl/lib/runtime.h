// The parts of the generated wrappers of kernels: positions, arguments, the loop over threads,
// kernel tables. A wrapper names a class K with
//   K(const metallib_launch*, char* threadgroup_memory)   takes the arguments out of the launch
//   void operator()(const _msl::Position&) const          one thread
#pragma once

#include "texture.h"

#if defined(__NVPTX__)
namespace _msl_pixels {  // its own, so that its names are not the shader's
#include "texture_access.h"
}
#endif

// For every kernel of a file.
#ifdef _MSL_FAST_MATH
#define _MSL_MATH_FLAG METALLIB_KERNEL_FLUSHES
#else
#define _MSL_MATH_FLAG 0
#endif
#ifdef _MSL_CHECKS
#define _MSL_MATH_FLAGS _MSL_MATH_FLAG | METALLIB_KERNEL_CHECKS
#else
#define _MSL_MATH_FLAGS _MSL_MATH_FLAG
#endif

namespace _msl {

#if defined(__NVPTX__)
struct GpuLaunch {
  unsigned threads[3], threadgroup_size[3], threadgroups[3];
};
typedef const GpuLaunch* Launch;
#else
typedef const metallib_launch* Launch;
#endif

// ---- the position attributes, as whatever type the parameter has: (u)short, (u)int, ulong and
// vectors of them.
template <class T>
struct Coordinates {
  static T of(uint x, uint, uint) { return T(x); }
};
template <class T>
struct Coordinates<metal::vec<T, 2>> {
  static metal::vec<T, 2> of(uint x, uint y, uint) { return {T(x), T(y)}; }
};
template <class T>
struct Coordinates<metal::vec<T, 3>> {
  static metal::vec<T, 3> of(uint x, uint y, uint z) { return {T(x), T(y), T(z)}; }
};
#define MSL_POSITION(name, X, Y, Z)                         \
  template <class T>                                        \
  inline T name(Launch l, const Position& p) {              \
    (void)l, (void)p;                                       \
    return Coordinates<metal::remove_cv_t<T>>::of(X, Y, Z); \
  }
#define MSL_POSITION3(name, of) MSL_POSITION(name, of[0], of[1], of[2])
MSL_POSITION(thread_position_in_grid,
             p.threadgroup_position[0] * l->threadgroup_size[0] + p.local[0],
             p.threadgroup_position[1] * l->threadgroup_size[1] + p.local[1],
             p.threadgroup_position[2] * l->threadgroup_size[2] + p.local[2])
MSL_POSITION3(thread_position_in_threadgroup, p.local)
MSL_POSITION3(threadgroup_position_in_grid, p.threadgroup_position)
MSL_POSITION3(threads_per_grid, l->threads)
MSL_POSITION3(threads_per_threadgroup, p.size)
MSL_POSITION3(dispatch_threads_per_threadgroup, l->threadgroup_size)
MSL_POSITION3(threadgroups_per_grid, l->threadgroups)
MSL_POSITION(grid_size, l->threads[0], l->threads[1], l->threads[2])
MSL_POSITION(grid_origin, 0, 0, 0)
#define MSL_INDEX(name, X) MSL_POSITION(name, X, 0, 0)
inline uint threads_in(const Position& p) { return p.size[0] * p.size[1] * p.size[2]; }
MSL_INDEX(thread_index_in_threadgroup, p.index)
MSL_INDEX(thread_index_in_simdgroup, p.index % 32)
MSL_INDEX(simdgroup_index_in_threadgroup, p.index / 32)
MSL_INDEX(threads_per_simdgroup, 32)
MSL_INDEX(thread_execution_width, 32)
MSL_INDEX(dispatch_simdgroups_per_threadgroup,
          (l->threadgroup_size[0] * l->threadgroup_size[1] * l->threadgroup_size[2] + 31) / 32)
MSL_INDEX(simdgroups_per_threadgroup, (threads_in(p) + 31) / 32)
MSL_INDEX(thread_index_in_quadgroup, p.index % 4)
MSL_INDEX(quadgroup_index_in_threadgroup, p.index / 4)
MSL_INDEX(quadgroup_index_in_simdgroup, p.index % 32 / 4)
MSL_INDEX(quadgroups_per_threadgroup, (threads_in(p) + 3) / 4)
MSL_INDEX(dispatch_quadgroups_per_threadgroup,
          (l->threadgroup_size[0] * l->threadgroup_size[1] * l->threadgroup_size[2] + 3) / 4)

#if defined(__NVPTX__)
#include "gpu_runtime.h"
#else
// ---- arguments
inline void* buffer(Launch l, unsigned kind, unsigned index) {
  void* p = l->buffers[index].address;
  return _msl_checked ? _msl_tag(l, kind, index, p) : p;
}
inline unsigned long up16(unsigned long n) { return (n + 15) & ~15ul; }
// Passed threadgroup memory lies one after the other, by index.
inline unsigned long threadgroup_bytes(Launch l) {
  unsigned long sum = 0;
  for (int i = 0; i < METALLIB_MAX_BUFFERS; ++i) sum += up16(l->threadgroup_lengths[i]);
  return sum;
}
// One without a length: where nothing is ever mapped, so that a kernel may have it and not touch
// it.
inline void* threadgroup_argument(Launch l, char* memory, unsigned index) {
  for (unsigned i = 0; i < index; ++i) memory += up16(l->threadgroup_lengths[i]);
  if (!l->threadgroup_lengths[index]) memory = reinterpret_cast<char*>(0x1000ul);
  return _msl_checked ? _msl_tag(l, METALLIB_THREADGROUP, index, memory) : memory;
}
// `constant T&` of a small T: copied once, so that its loads leave the loop over threads.
template <class T, bool small = sizeof(T) <= 256 && __is_trivially_copyable(T)>
struct Reference {
  T* object;
  explicit Reference(void* p) : object(static_cast<T*>(p)) {}
  constant T& get() const { return *(constant T*)object; }
};
template <class T>
struct Reference<T, true> {
  union {
    T object;  // never constructed: a struct with a reference in it could not be
  };
  explicit Reference(void* p) { __builtin_memcpy((void*)&object, p, sizeof(T)); }
  constant T& get() const { return *(constant T*)&object; }
};

template <class T>
struct Textures {
  static T at(Launch l, unsigned index) {
    return T(
        static_cast<const metallib_texture*>(l->buffers[METALLIB_FIRST_TEXTURE + index].address));
  }
};
template <class T, size_t n>
struct Textures<metal::array<T, n>> {
  static metal::array<T, n> at(Launch l, unsigned index) {
    metal::array<T, n> all;
    for (unsigned i = 0; i < n; ++i) all[i] = Textures<T>::at(l, index + i);
    return all;
  }
};
template <class T>
inline T texture(Launch l, unsigned index) {
  return Textures<T>::at(l, index);
}
// One that a function constant leaves out is not bound.
inline metal::sampler sampler(Launch l, unsigned index) {
  auto* bound =
      static_cast<const metallib_sampler*>(l->buffers[METALLIB_FIRST_SAMPLER + index].address);
  return bound ? metal::sampler(bound) : metal::sampler();
}

template <class T>
inline T table(Launch l, unsigned index) {
  return T(l->buffers[index].address, l->buffers[index].length);
}
inline ulong no_scratch(Launch) { return 0; }

// ---- running
// Thread by thread; the innermost loop is the one that the compiler may vectorise.
template <class K, bool logs = false>
inline __attribute__((always_inline)) void run_loop(Launch l, ulong first, ulong count,
                                                    void* scratch) {
  // A copy: a kernel's stores might otherwise change the sizes of its own launch, which were then
  // read anew at every thread, and the loop below were not vectorised.
  const metallib_launch launch = *l;
  l = &launch;
  const K body(l, static_cast<char*>(scratch));
  const uint nx = l->threadgroups[0], ny = l->threadgroups[1];
  Position p;
  p.threadgroup_position[0] = uint(first % nx);
  p.threadgroup_position[1] = uint(first / nx % ny);
  p.threadgroup_position[2] = uint(first / nx / ny);
  for (ulong n = 0; n < count; ++n) {
    if (_msl_checked && _msl_faulted()) return;
    for (int i = 0; i < 3; ++i) {
      const uint left = l->threads[i] - p.threadgroup_position[i] * l->threadgroup_size[i];
      p.size[i] = left < l->threadgroup_size[i] ? left : l->threadgroup_size[i];
    }
    uint row = 0;
    for (p.local[2] = 0; p.local[2] < p.size[2]; ++p.local[2]) {
      for (p.local[1] = 0; p.local[1] < p.size[1]; ++p.local[1], row += p.size[0]) {
        for (uint x = 0; x < p.size[0]; ++x) {
          Position q = p;
          q.local[0] = x;
          q.index = row + x;
          if (_msl_checked) _msl_at(&q);
          if (logs) _msl_log_at(&q);
          body(q);
        }
      }
    }
    if (++p.threadgroup_position[0] == nx) {
      p.threadgroup_position[0] = 0;
      if (++p.threadgroup_position[1] == ny)
        p.threadgroup_position[1] = 0, ++p.threadgroup_position[2];
    }
  }
}
template <class K>
void fiber_body(const void* body, const Position& p) {
  (*static_cast<const K*>(body))(p);
}
// As library.cc lays a group's scratch out: control block, threadgroup memory, stacks.
template <class K>
inline void run_fibers(Launch l, ulong first, ulong count, void* scratch) {
  const ulong bytes = threadgroup_bytes(l);
  const K body(l, static_cast<char*>(scratch) + _msl_fiber_scratch(l, bytes, 0) -
                      ((bytes + 63) & ~63ul) - kFiberTail);
  _msl_run_fibers(l, first, count, scratch, bytes, _msl_stack_bytes, fiber_body<K>, &body);
}
// How the threads of a kernel with barriers run, as lanes.py decides: 0 by fibers, else kLanes and
// more.
enum : int {
  kLanes = 1,
  kBarriers = 2,     // simdgroups wait for each other
  kRows = 4,         // only where the lanes of a simdgroup lie next to each other in a row,
  kAlignedRows = 8,  // and a threadgroup has whole simdgroups in x
};
inline bool by_lanes(Launch l, int by) {
  if (!(by & kRows)) return by;
  const unsigned* size = l->threadgroup_size;
  const bool whole = size[0] % 32 == 0, line = size[1] * size[2] == 1;
  return by & kAlignedRows ? whole && (line || l->threads[0] % size[0] % 32 == 0)
                           : line || (whole && l->threads[0] % size[0] % 32 == 0);
}
// By simdgroups: passed threadgroup memory, then the scheduler's.
template <class K>
inline void run_lanes(Launch l, ulong first, ulong count, void* scratch, int by,
                      SimdgroupBody body) {
  const K arguments(l, static_cast<char*>(scratch));
  void* const rest = static_cast<char*>(scratch) + ((threadgroup_bytes(l) + 63) & ~63ul);
  _msl_run_simdgroups(l, first, count, rest, _msl_stack_bytes, by & kBarriers, body, &arguments);
}
// One lane, given its own part of its position: lanes.py makes loops of it.
template <class K>
inline __attribute__((always_inline)) void lane_body(const void* arguments, const Position* group,
                                                     uint index, uint x, uint y, uint z) {
  Position p;
  for (int i = 0; i < 3; ++i) {
    p.threadgroup_position[i] = group->threadgroup_position[i];
    p.size[i] = group->size[i];
  }
  p.local[0] = x, p.local[1] = y, p.local[2] = z;
  p.index = index;
  (*static_cast<const K*>(arguments))(p);
}
template <class K>
ulong loop_scratch(Launch l) {
  return threadgroup_bytes(l);
}
inline ulong meeting_scratch(Launch l, int by) {
  const ulong bytes = threadgroup_bytes(l);
  return by_lanes(l, by) ? _msl_simdgroup_scratch(l, bytes, _msl_stack_bytes)
                         : _msl_fiber_scratch(l, bytes, _msl_stack_bytes);
}
#endif  // __NVPTX__

// ---- tables
template <class T>
constexpr uint size_of = sizeof(T);
template <>
constexpr uint size_of<void> = 1;
template <class T>
constexpr uint align_of = alignof(T);
template <>
constexpr uint align_of<void> = 1;

// Type of a kernel's parameter. F: the function, or the constant pointer to it.
template <class F, int i>
struct ParameterOf;
template <class R, class... A, int i>
struct ParameterOf<R(A...), i> : metal::type_identity<__type_pack_element<i, A...>> {};
template <class F, int i>
struct ParameterOf<F*, i> : ParameterOf<F, i> {};
template <class F, int i>
struct ParameterOf<F* const, i> : ParameterOf<F, i> {};
template <class F, int i>
using parameter = typename ParameterOf<F, i>::type;
// T of T* and T&, with its qualifiers.
template <class T>
struct PointeeOf;
template <class T>
struct PointeeOf<T*> : metal::type_identity<T> {};
template <class T>
struct PointeeOf<T&> : metal::type_identity<T> {};
template <class T>
using pointee = typename PointeeOf<T>::type;

// A derived function constant becomes its initialiser's value, now that the others have values.
template <class T, class V>
inline void set_derived(constant T&, void* at, V value) {
  const T converted = T(value);
  __builtin_memcpy(at, (const void*)&converted, sizeof converted);
}

}  // namespace _msl
