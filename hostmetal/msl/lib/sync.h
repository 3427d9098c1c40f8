// Shared by shaders and the scheduler (library.cc): one fiber per thread, blocked at a barrier or a
// simdgroup function.
#pragma once

#include "../metallib_abi.h"

#if defined(__NVPTX__)
#include "gpu_sync.h"
#else

namespace _msl {

constexpr unsigned kSimdWidth = 32;
constexpr unsigned kSlotWords = 12;  // of a lane's operands and result
// Stacks of the same alignment would share a few cache sets: their tops are staggered over this
// many bytes.
constexpr unsigned long kStagger = 32 * 128;
constexpr unsigned long kFiberTail = kStagger + 64;  // of a group's scratch, behind the stacks

// A simdgroup's slots, word after word: values that loops over lanes write lie side by side, and
// lanes that wait elsewhere have their own places whatever the types.
typedef unsigned (*Slots)[kSimdWidth];
// Works on the slots of the lanes in `mask`, all at one call of one simdgroup function; leaves each
// lane's result in its own slot.
typedef void (*Resolver)(Slots slots, unsigned mask);
// An operation on simdgroup matrices (whole_matrix.h), by all lanes in `mask` at once or by a fiber.
typedef void (*WholeMatrix)(void* d, const void* a, const void* b, const void* c,
                            unsigned long line, unsigned turned, unsigned mask);
typedef void (*LaneMatrix)(void* d, const void* a, const void* b, const void* c, unsigned long line,
                           unsigned turned, unsigned long site, unsigned of);

struct Position {
  unsigned threadgroup_position[3], local[3],
      size[3];     // size: of this threadgroup, clipped at the grid's edge
  unsigned index;  // thread_index_in_threadgroup
};

typedef void (*Body)(const void* arguments, const Position& position);
// A whole simdgroup, its lanes in loops: lanes.py makes it of a kernel. `group`: as a Position, of
// which the thread's part is not set.
typedef void (*SimdgroupBody)(const void* arguments, const Position& group, unsigned simdgroup);

}  // namespace _msl

#define MSL_HIDDEN extern "C" __attribute__((visibility("hidden")))
MSL_HIDDEN void _msl_barrier();
MSL_HIDDEN unsigned* _msl_slot();  // the first word of the running lane
MSL_HIDDEN unsigned _msl_lane();
MSL_HIDDEN void _msl_simd(unsigned long site, _msl::Resolver resolve);
// `bytes`: of a lane's part of d, a, b and c, each in a byte of its own; 0 where that is no matrix.
#define MSL_READ __attribute__((noescape)) const void*
MSL_HIDDEN void _msl_matrix(__attribute__((noescape)) void* d, MSL_READ a, MSL_READ b, MSL_READ c,
                            unsigned long line, unsigned turned, unsigned bytes, unsigned long site,
                            _msl::WholeMatrix whole, _msl::LaneMatrix lane);
MSL_HIDDEN unsigned long _msl_fiber_scratch(const metallib_launch* launch,
                                            unsigned long threadgroup_bytes,
                                            unsigned long stack_bytes);
MSL_HIDDEN void _msl_run_fibers(const metallib_launch* launch, unsigned long first,
                                unsigned long count, void* scratch, unsigned long threadgroup_bytes,
                                unsigned long stack_bytes, _msl::Body body, const void* arguments);
MSL_HIDDEN unsigned long _msl_simdgroup_scratch(const metallib_launch* launch,
                                                unsigned long threadgroup_bytes,
                                                unsigned long stack_bytes);
// In `scratch`; where no simdgroup waits for another, there are no fibers.
MSL_HIDDEN void _msl_run_simdgroups(const metallib_launch* launch, unsigned long first,
                                    unsigned long count, void* scratch, unsigned long stack_bytes,
                                    bool barriers, _msl::SimdgroupBody body, const void* arguments);
MSL_HIDDEN void _msl_simdgroup_barrier();  // threadgroup_barrier of a simdgroup that has a fiber
MSL_HIDDEN void _msl_unsynchronised();  // a barrier in a kernel that runs as a loop: cannot happen

// Validation. In the checked library every access goes through _msl_check (see library.cc);
// _msl_checked is set to 1.
extern "C" {
extern const int _msl_checked __attribute__((visibility("hidden")));
// Whether products get copies of their matrices: then the structs that matrices are part of do not have to lie in
// memory.
extern const int _msl_matrices_apart __attribute__((visibility("hidden")));
extern const unsigned long _msl_stack_bytes __attribute__((visibility("hidden")));
}
MSL_HIDDEN void* _msl_tag(const metallib_launch* launch, unsigned kind, unsigned index,
                          void* address);
MSL_HIDDEN void _msl_at(const _msl::Position* position);
MSL_HIDDEN void _msl_coverage();  // before the first thread of a kernel that counts what runs
MSL_HIDDEN void _msl_log_at(const _msl::Position* position);  // of kernels that log
// Calls inner(...) so that a fault returns here.
MSL_HIDDEN void _msl_guarded(const metallib_launch* launch, unsigned long first,
                             unsigned long count, void* scratch, const char* kernel_name,
                             void (*inner)(const metallib_launch*, unsigned long, unsigned long,
                                           void*));
MSL_HIDDEN bool _msl_faulted();
MSL_HIDDEN void _msl_assertion(const char* sentence);

#ifdef _MSL_CHECKS
// -fshader-checks (checks.h). `place`: the compiler puts one of each call's own there.
#define MSL_APART __attribute__((nomerge))
MSL_HIDDEN MSL_APART void _msl_checked_barrier(unsigned flags, const void* place);
MSL_HIDDEN MSL_APART void _msl_checked_simd_barrier(unsigned flags, const void* place);
MSL_HIDDEN void _msl_checked_simd_meets(_msl::Slots slots, unsigned mask);
#endif

namespace _msl {
template <class T>
constexpr unsigned slot_words = (sizeof(T) + 3) / 4;
template <class T>
inline void put(unsigned* slot, const T& value) {
  unsigned words[slot_words<T>] = {};
  __builtin_memcpy(words, (const void*)&value, sizeof(T));
#pragma clang loop unroll(full)
  for (unsigned i = 0; i < slot_words<T>; ++i) slot[i * kSimdWidth] = words[i];
}
template <class T>
inline T get(const unsigned* slot) {
  unsigned words[slot_words<T>];
#pragma clang loop unroll(full)
  for (unsigned i = 0; i < slot_words<T>; ++i) words[i] = slot[i * kSimdWidth];
  T value;
  __builtin_memcpy((void*)&value, words, sizeof(T));
  return value;
}
template <class T>
inline T exchange(unsigned long site, Resolver resolve, const T& value) {
  static_assert(slot_words<T> <= kSlotWords, "simdgroup functions take types of at most 16 bytes");
  unsigned* slot = _msl_slot();
  put(slot, value);
  _msl_simd(site, resolve);
  return get<T>(slot);
}
inline void simd_barrier(unsigned long site) {
  _msl_simd(site, [](Slots, unsigned) {});
}
}  // namespace _msl
#endif  // __NVPTX__

namespace _msl {
// Where a simdgroup function is called: on the CPU lanes wait for each other only at the same place
// of the source.
constexpr unsigned long place(unsigned line, unsigned column) {
  return (unsigned long)line << 32 | column;
}
}  // namespace _msl
#define MSL_SITE unsigned long site = _msl::place(__builtin_LINE(), __builtin_COLUMN())
// <metal_assert>'s assert.
#if defined(__NVPTX__)
#define _MSL_ASSERT(...) ((void)(__VA_ARGS__))
#else
#define _MSL_ASSERT(...) \
  ((__VA_ARGS__) || !_msl_checked ? (void)0 : _msl_assertion("assertion failed: " #__VA_ARGS__))
#endif
// Without <metal_assert>. No macro, which one of a program's own would be a second definition of.
template <class T>
inline __attribute__((always_inline)) void assert(T&& condition) {
#if !defined(__NVPTX__)
  if (!condition && _msl_checked) _msl_assertion("assertion failed");
#endif
}
