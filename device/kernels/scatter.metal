// Slices of a tensor changed by indices, and slices taken by them.
//
// A thread has some rows of the tensor and some elements of them for itself, and looks at all indices
// for those rows, in their order: so results are the same from run to run, and the CPU's, in every
// dtype, without atomics. Indices outside the tensor change nothing.

#include "device/kernels/complex.metal.h"
#include "device/kernels/gather.metal.h"
#include "device/kernels/scatter.metal.h"
#include "device/kernels/strided.metal.h"
#include "kernels/msl/grid.h"

using namespace metal;

struct Update {
  template <typename T>
  T operator()(T, T value) const {
    return value;
  }
};
struct Add {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old + value);
  }
};
struct Sub {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old - value);
  }
};
struct Mul {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old * value);
  }
};
struct Div {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old / value);
  }
};
struct Max {
  template <typename T>
  T operator()(T old, T value) const {
    return value > old || value != value ? value : old;
  }
};
struct Min {
  template <typename T>
  T operator()(T old, T value) const {
    return value < old || value != value ? value : old;
  }
};

// For bools, whose sum is true if one of them is.
struct Or {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old | value);
  }
};
struct Differ {
  template <typename T>
  T operator()(T old, T value) const {
    return T(old ^ value);
  }
};
// For complex numbers.
struct Times {
  float2 operator()(float2 old, float2 value) const { return times(old, value); }
};
struct Over {
  float2 operator()(float2 old, float2 value) const { return over(old, value); }
};

// `step`: 0 if `from` is one value.
template <typename Op, typename T>
inline void scatter_block(device T* to, device const T* from, uint step, ulong left) {
  using Wide = typename wide<T>::type;
  const Op op = Op();
  if (left >= SCATTER_BLOCK && step == 1) {
    T values[SCATTER_BLOCK];
    for (uint k = 0; k < SCATTER_BLOCK; ++k) values[k] = T(op(Wide(to[k]), Wide(from[k])));
    for (uint k = 0; k < SCATTER_BLOCK; ++k) to[k] = values[k];
  } else {
    const uint elements = uint(min(ulong(SCATTER_BLOCK), left));
    for (uint k = 0; k < elements; ++k) to[k] = T(op(Wide(to[k]), Wide(from[k * step])));
  }
}

// Grid: parts of a slice's elements, ranges of rows.
template <typename Op, typename T, typename I>
kernel void scatter(device const I* indices [[buffer(0)]], device const T* updates [[buffer(1)]],
                    device T* out [[buffer(2)]], constant ScatterParams& p [[buffer(3)]],
                    uint2 position [[thread_position_in_grid]]) {
  const uint step = p.one_value != 0 ? 0 : 1;
  for (ulong i = 0; i < p.updates; ++i) {
    const ScatterPart part = scatter_part(p, indices, i, position);
    for (ulong k = 0; k < part.elements; k += SCATTER_BLOCK) {
      scatter_block<Op>(out + part.at + k, updates + (part.from + k) * step, step,
                        part.elements - k);
    }
  }
}

// Grid: Flat, the elements of the result. For indices outside there are zeros.
template <typename T, typename I>
kernel void gather_nd(device const T* in [[buffer(0)]], device const I* indices [[buffer(1)]],
                      device T* out [[buffer(2)]], constant ScatterParams& p [[buffer(3)]],
                      uint2 position [[thread_position_in_grid]],
                      uint2 threads [[threads_per_grid]]) {
  const ulong at = flat_index(position, threads);
  if (at >= p.updates * p.inner) return;
  const ulong i = at / p.inner, row = scatter_row(p, indices, i);
  out[at] = row < p.rows ? in[row * p.inner + (at - i * p.inner)] : T(0);
}

// Grid: blocks of kBlock elements of a slice, slices.
template <typename T, typename I, uint kBlock>
kernel void gather_nd_rows(device const T* in [[buffer(0)]], device const I* indices [[buffer(1)]],
                           device T* out [[buffer(2)]], constant ScatterParams& p [[buffer(3)]],
                           uint2 position [[thread_position_in_grid]]) {
  const ulong row = scatter_row(p, indices, ulong(position.y));
  const ulong first = ulong(position.x) * kBlock;
  const bool inside = row < p.rows;
  gather_block<kBlock>(in + (inside ? row : 0) * p.inner + first,
                       out + ulong(position.y) * p.inner + first, inside, p.inner - first);
}

#define SCATTER(name, op, type)                                                \
  INSTANTIATE_KERNEL("scatter_" name "_" #type "_int", scatter, op, type, int) \
  INSTANTIATE_KERNEL("scatter_" name "_" #type "_long", scatter, op, type, long)
#define SCATTER_FLOATS(name, op) \
  SCATTER(name, op, float)       \
  SCATTER(name, op, half)        \
  IF_BFLOAT(SCATTER(name, op, bfloat))
#define SCATTER_SIGNLESS(name, op) \
  SCATTER(name, op, uchar)         \
  SCATTER(name, op, ushort)        \
  SCATTER(name, op, uint)          \
  SCATTER(name, op, ulong)
#define SCATTER_SIGNED(name, op) \
  SCATTER(name, op, char)        \
  SCATTER(name, op, short)       \
  SCATTER(name, op, int)         \
  SCATTER(name, op, long)
SCATTER_FLOATS("add", Add)
SCATTER_SIGNLESS("add", Add)
SCATTER_FLOATS("sub", Sub)
SCATTER_SIGNLESS("sub", Sub)
SCATTER_FLOATS("mul", Mul)
SCATTER_SIGNLESS("mul", Mul)
SCATTER_FLOATS("div", Div)
SCATTER_SIGNLESS("div", Div)
SCATTER_SIGNED("div", Div)
SCATTER("add", Add, float2)
SCATTER("sub", Sub, float2)
SCATTER("mul", Times, float2)
SCATTER("div", Over, float2)
SCATTER("add", Or, bool)
SCATTER("sub", Differ, bool)
SCATTER_FLOATS("max", Max)
SCATTER_SIGNLESS("max", Max)
SCATTER_SIGNED("max", Max)
SCATTER_FLOATS("min", Min)
SCATTER_SIGNLESS("min", Min)
SCATTER_SIGNED("min", Min)

#define MOVE(bytes, type)                                                          \
  INSTANTIATE_KERNEL("scatter_update_" bytes "_int", scatter, Update, type, int)   \
  INSTANTIATE_KERNEL("scatter_update_" bytes "_long", scatter, Update, type, long) \
  INSTANTIATE_KERNEL("gather_nd_" bytes "_int", gather_nd, type, int)              \
  INSTANTIATE_KERNEL("gather_nd_" bytes "_long", gather_nd, type, long)            \
  GATHER_ND_ROWS("gather_nd_rows_" bytes, type, GATHER_BLOCK)                      \
  GATHER_ND_ROWS("gather_nd_rows_many_" bytes, type, GATHER_MANY_BYTES / sizeof(type))
#define GATHER_ND_ROWS(name, type, block)                           \
  INSTANTIATE_KERNEL(name "_int", gather_nd_rows, type, int, block) \
  INSTANTIATE_KERNEL(name "_long", gather_nd_rows, type, long, block)
MOVE("1", uchar)
MOVE("2", ushort)
MOVE("4", uint)
MOVE("8", ulong)
MOVE("16", ulong2)
