// Sums, means, products, largest and smallest elements, all and any. Every thread takes REDUCE_CHUNK
// elements at most and the passes are repeated on their results, so the rounding error grows with the
// number of passes and not with the number of elements.

#include "device/kernels/arg_params.h"
#include "device/kernels/join.metal.h"
#include "device/kernels/strided.metal.h"

using namespace metal;

struct Squares : Sum {
  template <typename T>
  static T of(T x) {
    return T(x * x);
  }
};
template <typename T>
inline T least() {
  return numeric_limits<T>::lowest();
}
template <>
inline float least<float>() {
  return -INFINITY;
}
template <typename T>
inline T greatest() {
  return numeric_limits<T>::max();
}
template <>
inline float greatest<float>() {
  return INFINITY;
}

// NaN stays.
struct Max : Plain {
  template <typename T>
  static T none() {
    return least<T>();
  }
  template <typename T>
  static T join(T a, T b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct Min : Plain {
  template <typename T>
  static T none() {
    return greatest<T>();
  }
  template <typename T>
  static T join(T a, T b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct All : Plain {
  template <typename T>
  static T none() {
    return T(1);
  }
  template <typename T>
  static T join(T a, T b) {
    return T(a & b);
  }
};
struct Any : Plain {
  template <typename T>
  static T none() {
    return T(0);
  }
  template <typename T>
  static T join(T a, T b) {
    return T(a | b);
  }
};

template <typename Total>
inline Total finish(constant ReduceParams& params, Total total) {
  if (params.divisor < 0.0f) return Total(sqrt(float(total)));
  return params.divisor != 1.0f ? Total(total / Total(params.divisor)) : total;
}

inline float2 finish(constant ReduceParams& params, float2 total) {
  return params.divisor != 1.0f ? total / params.divisor : total;
}

// Joins the elements of a run by 32, as many totals as hide the latency of one, and those with eight; the result says
// how much of the run that was.
template <typename Op, typename T, typename Total>
struct Run {
  static uint join(device const T* in, uint run, thread Total (&totals)[8]) {
    Total many[32];
    for (uint k = 0; k < 32; ++k) many[k] = Op::template none<Total>();
    uint i = 0;
    for (; i + 32 <= run; i += 32) {
      for (uint k = 0; k < 32; ++k) many[k] = Op::join(many[k], Op::of(Total(in[i + k])));
    }
    for (uint k = 0; k < 32; ++k) totals[k % 8] = Op::join(totals[k % 8], many[k]);
    return i;
  }
};
#if defined(__METAL_CPU__)
// By a processor's vectors, in the same order: a compiler finds but pairs in the totals.
template <typename Op, typename T, typename Total>
struct VectorRun {
  typedef Total Eight __attribute__((ext_vector_type(8)));
  typedef Total Many __attribute__((ext_vector_type(32)));
  typedef T Row __attribute__((ext_vector_type(32), aligned(sizeof(T))));

#define EIGHT(many, at)                                                                     \
  __builtin_shufflevector(many, many, at, (at) + 1, (at) + 2, (at) + 3, (at) + 4, (at) + 5, \
                          (at) + 6, (at) + 7)
  static uint join(device const T* in, uint run, thread Total (&totals)[8]) {
    Many many = Op::template none<Total>();
    uint i = 0;
    for (; i + 32 <= run; i += 32) {
      const Row row = *(device const Row*)(in + i);
      many = Op::join(many, Op::of(__builtin_convertvector(row, Many)));
    }
    Eight eight = Op::template none<Total>();
    eight = Op::join(eight, Eight(EIGHT(many, 0)));
    eight = Op::join(eight, Eight(EIGHT(many, 8)));
    eight = Op::join(eight, Eight(EIGHT(many, 16)));
    eight = Op::join(eight, Eight(EIGHT(many, 24)));
    for (uint k = 0; k < 8; ++k) totals[k] = eight[k];
    return i;
  }
#undef EIGHT
};
#define VECTOR_RUN(type)                 \
  template <typename Op, typename Total> \
  struct Run<Op, type, Total> : VectorRun<Op, type, Total> {};
VECTOR_RUN(float)
VECTOR_RUN(half)
VECTOR_RUN(char)
VECTOR_RUN(short)
VECTOR_RUN(int)
VECTOR_RUN(long)
VECTOR_RUN(uchar)
VECTOR_RUN(ushort)
VECTOR_RUN(uint)
VECTOR_RUN(ulong)
#undef VECTOR_RUN
#endif

template <typename Op, typename T, typename Total, typename Out>
kernel void reduce(device const T* in [[buffer(0)]], device Out* out [[buffer(1)]],
                   constant ReduceParams& params [[buffer(2)]],
                   uint2 position [[thread_position_in_grid]]) {
  long base = 0;
  uint rest = position.y;
  for (uint d = 0; rest != 0; ++d) {
    base += long(rest % params.kept_dims[d]) * params.kept_strides[d];
    rest /= params.kept_dims[d];
  }
  ulong at = ulong(position.x) * params.chunk;
  const ulong end = min(at + params.chunk, params.count);
  Total total = Op::template none<Total>();
  while (at < end) {
    // A run along the innermost reduced dimension.
    const ulong inner = at % params.reduced_dims[0];
    ulong outer = at / params.reduced_dims[0];
    long index = base + long(inner) * params.reduced_strides[0];
    for (uint d = 1; outer != 0; ++d) {
      index += long(outer % params.reduced_dims[d]) * params.reduced_strides[d];
      outer /= params.reduced_dims[d];
    }
    const uint run = uint(min(ulong(params.reduced_dims[0]) - inner, end - at));
    const long stride = params.reduced_strides[0];
    uint i = 0;
    if (stride == 1) {
      // Eight totals that do not wait for each other.
      Total totals[8];
      for (uint k = 0; k < 8; ++k) totals[k] = Op::template none<Total>();
      if (run >= 64) {
        i = Run<Op, T, Total>::join(in + index, run, totals);
      }
      for (; i + 8 <= run; i += 8) {
        for (uint k = 0; k < 8; ++k) {
          totals[k] = Op::join(totals[k], Op::of(Total(in[index + long(i + k)])));
        }
      }
      for (uint width = 4; width > 0; width /= 2) {
        for (uint k = 0; k < width; ++k) totals[k] = Op::join(totals[k], totals[k + width]);
      }
      total = Op::join(total, totals[0]);
    }
    for (; i < run; ++i) total = Op::join(total, Op::of(Total(in[index + long(i) * stride])));
    at += run;
  }
  out[ulong(position.y) * params.chunks + position.x] = Out(finish(params, total));
}

// The first pass over rows of which every column is an output: grid of blocks of columns, chunks of
// rows, and the other kept dimensions. Elements are joined in the order in which `reduce` joins
// them.
template <typename Op, typename T, typename Total, typename Out>
kernel void reduce_columns(device const T* in [[buffer(0)]], device Out* out [[buffer(1)]],
                           constant ReduceParams& params [[buffer(2)]],
                           uint3 position [[thread_position_in_grid]]) {
  const uint first = position.x * REDUCE_COLUMNS;
  const uint width = min(uint(REDUCE_COLUMNS), params.kept_dims[0] - first);
  long base = long(first);
  uint rest = position.z;
  for (uint d = 1; rest != 0; ++d) {
    base += long(rest % params.kept_dims[d]) * params.kept_strides[d];
    rest /= params.kept_dims[d];
  }
  const ulong begin = ulong(position.y) * params.chunk;
  const ulong end = min(begin + params.chunk, params.count);
  Total totals[REDUCE_COLUMNS];
  for (uint k = 0; k < REDUCE_COLUMNS; ++k) totals[k] = Op::template none<Total>();
  if (width == REDUCE_COLUMNS) {
    for (ulong i = begin; i < end; ++i) {
      const long at = base + long(i) * params.reduced_strides[0];
      for (uint k = 0; k < REDUCE_COLUMNS; ++k) {
        totals[k] = Op::join(totals[k], Op::of(Total(in[at + long(k)])));
      }
    }
  } else {
    for (ulong i = begin; i < end; ++i) {
      const long at = base + long(i) * params.reduced_strides[0];
      for (uint k = 0; k < width; ++k) {
        totals[k] = Op::join(totals[k], Op::of(Total(in[at + long(k)])));
      }
    }
  }
  const ulong to = ulong(position.z) * params.kept_dims[0] + first;
  for (uint k = 0; k < width; ++k) {
    out[(to + k) * params.chunks + position.y] = Out(finish(params, totals[k]));
  }
}

#define REDUCE(name, op, from, total, to)                                 \
  INSTANTIATE_KERNEL(name "_" #from "_" #to, reduce, op, from, total, to) \
  INSTANTIATE_KERNEL(name "_columns_" #from "_" #to, reduce_columns, op, from, total, to)
// Passes but the last leave floats.
#define REDUCE_FLOATS(name, op)                      \
  REDUCE(name, op, float, float, float)              \
  REDUCE(name, op, half, float, float)               \
  IF_BFLOAT(REDUCE(name, op, bfloat, float, float))  \
  REDUCE(name, op, half, float, half)                \
  IF_BFLOAT(REDUCE(name, op, bfloat, float, bfloat)) \
  REDUCE(name, op, float, float, half)               \
  IF_BFLOAT(REDUCE(name, op, float, float, bfloat))
#define REDUCE_SIGNLESS(name, op)          \
  REDUCE(name, op, uchar, uchar, uchar)    \
  REDUCE(name, op, ushort, ushort, ushort) \
  REDUCE(name, op, uint, uint, uint)       \
  REDUCE(name, op, ulong, ulong, ulong)
#define REDUCE_SIGNED(name, op)         \
  REDUCE(name, op, char, char, char)    \
  REDUCE(name, op, short, short, short) \
  REDUCE(name, op, long, long, long)
REDUCE_FLOATS("sum", Sum)
REDUCE_SIGNLESS("sum", Sum)
REDUCE("sum", Sum, float2, float2, float2)  // complex
// Means of integers are added up in 64 bits, those with a sign, too.
REDUCE("sum", Sum, char, ulong, ulong)
REDUCE("sum", Sum, short, ulong, ulong)
REDUCE("sum", Sum, int, ulong, ulong)
REDUCE("sum", Sum, uchar, ulong, ulong)
REDUCE("sum", Sum, ushort, ulong, ulong)
REDUCE("sum", Sum, uint, ulong, ulong)
REDUCE_FLOATS("squares", Squares)
REDUCE_FLOATS("prod", Prod)
REDUCE_SIGNLESS("prod", Prod)
REDUCE("prod", ComplexProd, float2, float2, float2)
REDUCE_FLOATS("max", Max)
REDUCE_SIGNLESS("max", Max)
REDUCE_SIGNED("max", Max)
REDUCE_FLOATS("min", Min)
REDUCE_SIGNLESS("min", Min)
REDUCE_SIGNED("min", Min)
REDUCE("all", All, uchar, uchar, uchar)
REDUCE("any", Any, uchar, uchar, uchar)

// ---- the place of the largest -------------------------------------------------------------------

// NaN is passed over, as on TensorFlow's CPU: where it is the first one, every number but the other end is better.
template <bool kLargest, typename T>
inline T arg_start(T first) {
  return first;
}
template <bool kLargest>
inline float arg_start(float first) {
  return first == first ? first : kLargest ? -INFINITY : INFINITY;
}

// in [outer, count, inner]; grid: inner, outer. The first of several.
template <typename T, typename Index, bool kLargest>
kernel void arg_reduce(device const T* in [[buffer(0)]], device Index* out [[buffer(1)]],
                       constant ulong& count [[buffer(2)]],
                       uint2 position [[thread_position_in_grid]],
                       uint2 size [[threads_per_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong inner = size.x;
  device const T* const from = in + ulong(position.y) * count * inner + position.x;
  Wide best = arg_start<kLargest>(Wide(from[0]));
  ulong place = 0;
  for (ulong i = 1; i < count; ++i) {
    const Wide value = Wide(from[i * inner]);
    if (kLargest ? value > best : value < best) {
      best = value;
      place = i;
    }
  }
  out[ulong(position.y) * inner + position.x] = Index(place);
}

// Where the rows' elements are neighbours: every lane has the best of its own, beginning with the first of all,
// which only a better one replaces. For 2^32 - 1 elements at most. Grid: rows.
template <typename T, typename Index, bool kLargest>
kernel void arg_rows(device const T* in [[buffer(0)]], device Index* out [[buffer(1)]],
                     constant ulong& count [[buffer(2)]], uint row [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  device const T* const from = in + ulong(row) * count;
  const uint n = uint(count);
  const Wide first = arg_start<kLargest>(Wide(from[0]));
  Wide best[ARG_LANES];
  uint place[ARG_LANES];
  for (uint k = 0; k < ARG_LANES; ++k) {
    best[k] = first;
    place[k] = 0;
  }
  uint i = 0;
  for (; n - i >= ARG_LANES; i += ARG_LANES) {
    for (uint k = 0; k < ARG_LANES; ++k) {
      const Wide value = Wide(from[i + k]);
      const bool better = kLargest ? value > best[k] : value < best[k];
      best[k] = better ? value : best[k];
      place[k] = better ? i + k : place[k];
    }
  }
  Wide chosen = best[0];
  uint at = place[0];
  for (uint k = 1; k < ARG_LANES; ++k) {
    const bool better = kLargest ? best[k] > chosen : best[k] < chosen;
    if (better || (best[k] == chosen && place[k] < at)) {
      chosen = best[k];
      at = place[k];
    }
  }
  for (; i < n; ++i) {
    const Wide value = Wide(from[i]);
    if (kLargest ? value > chosen : value < chosen) {
      chosen = value;
      at = i;
    }
  }
  out[row] = Index(at);
}

// ARG_LANES columns side by side. For 2^32 - 1 elements at most. Grid: inner in parts of ARG_LANES,
// outer.
template <typename T, typename Index, bool kLargest>
kernel void arg_columns(device const T* in [[buffer(0)]], device Index* out [[buffer(1)]],
                        constant ulong& count [[buffer(2)]], constant ulong& inner [[buffer(3)]],
                        uint2 position [[thread_position_in_grid]]) {
  using Wide = typename wide<T>::type;
  const ulong first = ulong(position.x) * ARG_LANES;
  device const T* const from = in + ulong(position.y) * count * inner + first;
  device Index* const to = out + ulong(position.y) * inner + first;
  const uint n = uint(count);
  if (inner - first >= ARG_LANES) {
    Wide best[ARG_LANES];
    uint place[ARG_LANES];
    for (uint k = 0; k < ARG_LANES; ++k) {
      best[k] = arg_start<kLargest>(Wide(from[k]));
      place[k] = 0;
    }
    for (uint i = 1; i < n; ++i) {
      for (uint k = 0; k < ARG_LANES; ++k) {
        const Wide value = Wide(from[i * inner + k]);
        const bool better = kLargest ? value > best[k] : value < best[k];
        best[k] = better ? value : best[k];
        place[k] = better ? i : place[k];
      }
    }
    for (uint k = 0; k < ARG_LANES; ++k) to[k] = Index(place[k]);
  } else {
    for (uint k = 0; k < uint(inner - first); ++k) {
      Wide best = arg_start<kLargest>(Wide(from[k]));
      uint place = 0;
      for (uint i = 1; i < n; ++i) {
        const Wide value = Wide(from[i * inner + k]);
        if (kLargest ? value > best : value < best) {
          best = value;
          place = i;
        }
      }
      to[k] = Index(place);
    }
  }
}

#define ARG_WAY(name, way, type, index)                                           \
  INSTANTIATE_KERNEL("arg_max" name "_" #type "_" #index, way, type, index, true) \
  INSTANTIATE_KERNEL("arg_min" name "_" #type "_" #index, way, type, index, false)
#define ARG_INDEX(type, index)            \
  ARG_WAY("", arg_reduce, type, index)    \
  ARG_WAY("_rows", arg_rows, type, index) \
  ARG_WAY("_columns", arg_columns, type, index)
#define ARG(type)      \
  ARG_INDEX(type, int) \
  ARG_INDEX(type, long)
ARG(float)
ARG(half)
IF_BFLOAT(ARG(bfloat))
ARG(char)
ARG(uchar)
ARG(short)
ARG(ushort)
ARG(int)
ARG(uint)
ARG(long)
ARG(ulong)
