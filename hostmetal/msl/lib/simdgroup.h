// <metal_simdgroup>, <metal_quadgroup>, <metal_compute>: barriers and functions over the 32 lanes
// of a simdgroup. Each function puts the lane's operands into its slot, waits for the other lanes
// at the same call, and takes its result out: the last lane to arrive computes it for all of them.
#pragma once

#include "atomic.h"
#include "math.h"
#include "sync.h"

namespace metal {

#ifdef _MSL_CHECKS
inline void threadgroup_barrier(mem_flags flags) { _msl_checked_barrier(uint(flags), nullptr); }
inline void threadgroup_barrier(mem_flags flags, thread_scope) {
  _msl_checked_barrier(uint(flags), nullptr);
}
inline void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  _msl_checked_simd_barrier(uint(flags), nullptr);
  _msl_simd(site, [](_msl::Slots slots, uint mask) { _msl_checked_simd_meets(slots, mask); });
}
#else
inline void threadgroup_barrier(mem_flags) { _msl_barrier(); }
inline void threadgroup_barrier(mem_flags, thread_scope) { _msl_barrier(); }
inline void simdgroup_barrier(mem_flags, MSL_SITE) {
  _msl::simd_barrier(site);
}
#endif

}  // namespace metal

namespace _msl {

struct Add {
  template <class T>
  static T of(T a, T b) {
    return T(a + b);
  }
  static constexpr int kIdentity = 0;
};
struct Multiply {
  template <class T>
  static T of(T a, T b) {
    return T(a * b);
  }
  static constexpr int kIdentity = 1;
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return T(metal::min(a, b));
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return T(metal::max(a, b));
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return T(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return T(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return T(a ^ b);
  }
};

// `threadgroup float x[32] = {0}`: the work of every thread of the group before the first barrier.
template <class T>
inline void zero(T& variable) {
  variable = T();
}
template <class T, int n>
inline void zero(T (&variable)[n]) {
  for (int i = 0; i < n; ++i) zero(variable[i]);
}

// Every lane names its source lane, or -1 for its own value; a source that is not active gives the
// own value too.
template <class T>
struct Moved {
  T value, fill;
  int source;
  int from_fill;
};

}  // namespace _msl

#if defined(__NVPTX__)
#include "gpu_simdgroup.h"
#else
namespace _msl {

template <int Width>
constexpr unsigned group_mask = Width == 32 ? ~0u : (1u << Width) - 1;

template <class Op, class V>
inline V of_vectors(V a, V b) {
  if constexpr (__is_same(Op, Min)) return __builtin_elementwise_min(a, b);
  else if constexpr (__is_same(Op, Max)) return __builtin_elementwise_max(a, b);
  else return Op::of(a, b);
}
// In an order that is the same in every run: halves are added while all lanes are there, else lane
// after lane.
template <class Op, class T, int Width>
void reduce(Slots slots, unsigned mask) {
  if (Width == 32 && mask == ~0u) {
    if constexpr (__is_same(T, float) || __is_same(T, int) || __is_same(T, uint)) {
      typedef T All __attribute__((ext_vector_type(32)));
      All v;
      __builtin_memcpy(&v, slots[0], sizeof(v));
      const auto sixteen = of_vectors<Op>(v.lo, v.hi);
      const auto eight = of_vectors<Op>(sixteen.lo, sixteen.hi);
      const auto four = of_vectors<Op>(eight.lo, eight.hi);
      const auto two = of_vectors<Op>(four.lo, four.hi);
      v = All(Op::of(T(two.x), T(two.y)));
      __builtin_memcpy(slots[0], &v, sizeof(v));
      return;
    }
    T values[32];
    for (int i = 0; i < 32; ++i) values[i] = get<T>(slots[0] + i);
    for (int half = 16; half; half /= 2)
      for (int i = 0; i < half; ++i) values[i] = Op::of(values[i], values[i + half]);
    for (int i = 0; i < 32; ++i) put(slots[0] + i, values[0]);
    return;
  }
  for (int base = 0; base < 32; base += Width) {
    const unsigned group = mask >> base & group_mask<Width>;
    if (!group) continue;
    T sum = get<T>(slots[0] + base + __builtin_ctz(group));
    for (unsigned m = group & (group - 1); m; m &= m - 1)
      sum = Op::of(sum, get<T>(slots[0] + base + __builtin_ctz(m)));
    for (unsigned m = group; m; m &= m - 1) put(slots[0] + base + __builtin_ctz(m), sum);
  }
}
template <class Op, class T, int Width, bool Inclusive>
void scan(Slots slots, unsigned mask) {
  for (int base = 0; base < 32; base += Width) {
    T sum = T(Op::kIdentity);
    for (unsigned m = mask >> base & group_mask<Width>; m; m &= m - 1) {
      unsigned* here = slots[0] + base + __builtin_ctz(m);
      const T before = sum;
      sum = Op::of(sum, get<T>(here));
      put(here, Inclusive ? sum : before);
    }
  }
}

template <class T>
void move(Slots slots, unsigned mask) {
  T result[32];
  for (unsigned m = mask; m; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    const auto mine = get<Moved<T>>(slots[0] + lane);
    const bool valid = mine.source >= 0 && mine.source < 32 && (mask >> mine.source & 1);
    const auto from = get<Moved<T>>(slots[0] + (valid ? mine.source : lane));
    result[lane] = valid && mine.from_fill ? from.fill : from.value;
  }
  for (unsigned m = mask; m; m &= m - 1) {
    const int lane = __builtin_ctz(m);
    put(slots[0] + lane, result[lane]);
  }
}

template <int Width>
void ballot(Slots slots, unsigned mask) {
  for (int base = 0; base < 32; base += Width) {
    const unsigned group = mask >> base & group_mask<Width>;
    unsigned votes = 0;
    for (unsigned m = group; m; m &= m - 1)
      if (slots[0][base + __builtin_ctz(m)]) votes |= m & -m;
    for (unsigned m = group; m; m &= m - 1)
      put(slots[0] + base + __builtin_ctz(m), uint2(votes, group));
  }
}
// x: lanes with a true vote, y: active lanes.
template <int Width>
inline uint2 vote(unsigned long site, bool yes) {
  return exchange(site, ballot<Width>, uint2(yes, 0));
}

template <class T, int Width>
void first(Slots slots, unsigned mask) {
  for (int base = 0; base < 32; base += Width) {
    const unsigned group = mask >> base & group_mask<Width>;
    if (!group) continue;
    const T value = get<T>(slots[0] + base + __builtin_ctz(group));
    for (unsigned m = group; m; m &= m - 1) put(slots[0] + base + __builtin_ctz(m), value);
  }
}

template <class Op, int Width, class T>
inline T reduced(unsigned long site, T x) {
  return exchange(site, reduce<Op, T, Width>, x);
}
template <class Op, int Width, bool Inclusive, class T>
inline T scanned(unsigned long site, T x) {
  return exchange(site, scan<Op, T, Width, Inclusive>, x);
}
template <class T>
inline T moved(unsigned long site, const Moved<T>& m) {
  if constexpr (sizeof(T) > 16) {
    struct Half {
      unsigned words[sizeof(T) / 8];
    } value[2], fill[2];
    __builtin_memcpy((void*)value, (const void*)&m.value, sizeof(T));
    __builtin_memcpy((void*)fill, (const void*)&m.fill, sizeof(T));
    for (int i = 0; i < 2; ++i)
      value[i] = moved(site, Moved<Half>{value[i], fill[i], m.source, m.from_fill});
    T all;
    __builtin_memcpy((void*)&all, (const void*)value, sizeof(T));
    return all;
  } else {
    return exchange(site, move<T>, m).value;
  }
}
template <class T>
inline T moved(unsigned long site, T value, int source) {
  return moved(site, Moved<T>{value, value, source, 0});
}
template <int Width, class T>
inline T from_first(unsigned long site, T x) {
  return exchange(site, first<T, Width>, x);
}

}  // namespace _msl
#endif  // __NVPTX__

namespace metal {

class simd_vote {
 public:
  typedef ulong vote_t;
  constexpr simd_vote(vote_t v = 0) : v_(v) {}
  constexpr explicit operator vote_t() const { return v_; }
  constexpr bool all() const { return v_ == 0xffffffff; }
  constexpr bool any() const { return v_ != 0; }
  constexpr bool operator==(simd_vote o) const { return v_ == o.v_; }
  constexpr simd_vote operator&(simd_vote o) const { return v_ & o.v_; }
  constexpr simd_vote operator|(simd_vote o) const { return v_ | o.v_; }
  constexpr simd_vote operator^(simd_vote o) const { return v_ ^ o.v_; }
  constexpr simd_vote operator~() const { return ~v_ & 0xffffffff; }

 private:
  vote_t v_;
};
class quad_vote {
 public:
  typedef uint vote_t;
  constexpr quad_vote(vote_t v = 0) : v_(v) {}
  constexpr explicit operator vote_t() const { return v_; }
  constexpr bool all() const { return v_ == 0xf; }
  constexpr bool any() const { return v_ != 0; }

 private:
  vote_t v_;
};

// The arguments of the functions of a simdgroup on every GPU; programs ask by this name.
template <class T>
struct __is_valid_simdgroup_type
    : bool_constant<is_arithmetic_v<vec_element_t<T>> && !is_same_v<vec_element_t<T>, bool> &&
                    sizeof(vec_element_t<T>) <= 4> {};

#define MSL_GROUP_FUNCTIONS(name, WIDTH, VOTE)                                                   \
  inline VOTE name##_ballot(bool yes, MSL_SITE) { return VOTE(_msl::vote<WIDTH>(site, yes).x); } \
  inline VOTE name##_active_threads_mask(MSL_SITE) {                                             \
    return VOTE(_msl::vote<WIDTH>(site, true).x);                                                \
  }                                                                                              \
  inline bool name##_all(bool yes, MSL_SITE) {                                                   \
    const uint2 v = _msl::vote<WIDTH>(site, yes);                                                \
    return v.x == v.y;                                                                           \
  }                                                                                              \
  inline bool name##_any(bool yes, MSL_SITE) { return _msl::vote<WIDTH>(site, yes).x != 0; }     \
  inline bool name##_is_first(MSL_SITE) {                                                        \
    return uint(__builtin_ctz(_msl::vote<WIDTH>(site, true).y)) == _msl_lane() % WIDTH;          \
  }                                                                                              \
  inline bool name##_is_helper_thread() { return false; }                                        \
  template <class T>                                                                             \
  inline T name##_sum(T x, MSL_SITE) {                                                           \
    return _msl::reduced<_msl::Add, WIDTH>(site, x);                                             \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_product(T x, MSL_SITE) {                                                       \
    return _msl::reduced<_msl::Multiply, WIDTH>(site, x);                                        \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_min(T x, MSL_SITE) {                                                           \
    return _msl::reduced<_msl::Min, WIDTH>(site, x);                                             \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_max(T x, MSL_SITE) {                                                           \
    return _msl::reduced<_msl::Max, WIDTH>(site, x);                                             \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_and(T x, MSL_SITE) {                                                           \
    return _msl::reduced<_msl::And, WIDTH>(site, x);                                             \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_or(T x, MSL_SITE) {                                                            \
    return _msl::reduced<_msl::Or, WIDTH>(site, x);                                              \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_xor(T x, MSL_SITE) {                                                           \
    return _msl::reduced<_msl::Xor, WIDTH>(site, x);                                             \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_prefix_inclusive_sum(T x, MSL_SITE) {                                          \
    return _msl::scanned<_msl::Add, WIDTH, true>(site, x);                                       \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_prefix_exclusive_sum(T x, MSL_SITE) {                                          \
    return _msl::scanned<_msl::Add, WIDTH, false>(site, x);                                      \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_prefix_inclusive_product(T x, MSL_SITE) {                                      \
    return _msl::scanned<_msl::Multiply, WIDTH, true>(site, x);                                  \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_prefix_exclusive_product(T x, MSL_SITE) {                                      \
    return _msl::scanned<_msl::Multiply, WIDTH, false>(site, x);                                 \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle(T x, ushort lane, MSL_SITE) {                                          \
    return _msl::moved(site, x, lane < WIDTH ? int(_msl_lane() / WIDTH * WIDTH + lane) : -1);    \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_broadcast(T x, ushort lane, MSL_SITE) {                                        \
    return name##_shuffle(x, lane, site);                                                        \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_xor(T x, ushort mask, MSL_SITE) {                                      \
    return name##_shuffle(x, ushort(_msl_lane() % WIDTH ^ mask), site);                          \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_up(T x, ushort delta, MSL_SITE) {                                      \
    const int lane = int(_msl_lane() % WIDTH) - delta;                                           \
    return name##_shuffle(x, ushort(lane < 0 ? 0xffff : lane), site);                            \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_down(T x, ushort delta, MSL_SITE) {                                    \
    return name##_shuffle(x, ushort(_msl_lane() % WIDTH + delta), site);                         \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_rotate_up(T x, ushort delta, MSL_SITE) {                               \
    return name##_shuffle(x, ushort((_msl_lane() - delta) % WIDTH), site);                       \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_rotate_down(T x, ushort delta, MSL_SITE) {                             \
    return name##_shuffle(x, ushort((_msl_lane() + delta) % WIDTH), site);                       \
  }                                                                                              \
  /* Lanes past the end take from the other end of fill; modulo splits the group into vectors of \
   * that many lanes. */                                                                         \
  template <class T>                                                                             \
  inline T name##_shuffle_and_fill_up(T x, T fill, ushort delta, ushort modulo = WIDTH,          \
                                      MSL_SITE) {                                                \
    const int lane = _msl_lane(), within = lane % modulo - delta, base = lane / modulo * modulo; \
    _msl::Moved<T> m{x, fill, base + (within < 0 ? within + modulo : within), within < 0};       \
    return _msl::moved(site, m);                                                                 \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_shuffle_and_fill_down(T x, T fill, ushort delta, ushort modulo = WIDTH,        \
                                        MSL_SITE) {                                              \
    const int lane = _msl_lane(), within = lane % modulo + delta, base = lane / modulo * modulo; \
    _msl::Moved<T> m{x, fill, base + (within >= modulo ? within - modulo : within),              \
                     within >= modulo};                                                          \
    return _msl::moved(site, m);                                                                 \
  }                                                                                              \
  template <class T>                                                                             \
  inline T name##_broadcast_first(T x, MSL_SITE) {                                               \
    return _msl::from_first<WIDTH>(site, x);                                                     \
  }
}  // namespace metal

namespace metal {
MSL_GROUP_FUNCTIONS(simd, 32, simd_vote)
MSL_GROUP_FUNCTIONS(quad, 4, quad_vote)
}  // namespace metal
