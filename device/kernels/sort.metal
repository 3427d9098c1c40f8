// Rows sorted, and their largest elements. Elements become unsigned keys of their order; equal ones keep
// theirs, so results are those of the CPU.
//
// Long rows are sorted by one digit of the keys after the other, the lowest first (Knuth, TAOCP 3, 5.2.5): threads
// count the digits of their chunk, the counts become places, the threads move their chunk. Short rows are merged by
// one thread. A few largest are kept in order while a thread looks at its chunk, and then of those that all
// threads kept.

#include <metal_stdlib>

#include "device/kernels/sort_params.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// In the order of the numbers; -0 is 0, and NaN is more than all.
inline uint order_key(float x) {
  const uint bits = as_type<uint>(x);
  const uint key = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return x != x ? 0xffffffffu : x == 0.0f ? 0x80000000u : key;
}
inline uint order_key_16(uint bits, float x) {
  const uint key = (bits >> 15) != 0 ? ~bits & 0xffffu : bits | 0x8000u;
  return x != x ? 0xffffu : x == 0.0f ? 0x8000u : key;
}
inline uint order_key(half x) { return order_key_16(as_type<ushort>(x), float(x)); }
IF_BFLOAT(inline uint order_key(bfloat x) { return order_key_16(as_type<ushort>(x), float(x)); })
inline uint order_key(uchar x) { return x; }
inline uint order_key(ushort x) { return x; }
inline uint order_key(uint x) { return x; }
inline ulong order_key(ulong x) { return x; }
inline uint order_key(char x) { return uint(uchar(x)) ^ 0x80u; }
inline uint order_key(short x) { return uint(ushort(x)) ^ 0x8000u; }
inline uint order_key(int x) { return uint(x) ^ 0x80000000u; }
inline ulong order_key(long x) { return ulong(x) ^ 0x8000000000000000u; }

template <typename T, typename Key>
inline Key sort_key(T x, bool descending) {
  const Key mask = ~Key(0) >> (8 * (sizeof(Key) - sizeof(T)));
  const Key key = Key(order_key(x));
  return descending ? key ^ mask : key;
}

// Grid: columns, rows.
template <typename T, typename Key>
kernel void sort_keys(device const T* in [[buffer(0)]], device Key* keys [[buffer(1)]],
                      device uint* order [[buffer(2)]], constant SortParams& p [[buffer(3)]],
                      uint2 position [[thread_position_in_grid]]) {
  const ulong i = ulong(position.y) * p.columns + position.x;
  keys[i] = sort_key<T, Key>(in[i], p.descending != 0);
  order[i] = position.x;
}

// ---- digit by digit; grid: chunks, rows ---------------------------------------------------------

template <typename Key>
kernel void sort_count(device const Key* keys [[buffer(0)]], device uint* counts [[buffer(1)]],
                       constant SortParams& p [[buffer(2)]],
                       uint2 position [[thread_position_in_grid]]) {
  device uint* const count = counts + (ulong(position.y) * p.chunks + position.x) * SORT_DIGITS;
  const ulong first = ulong(position.x) * p.chunk, last = min(first + p.chunk, p.columns);
  device const Key* const row = keys + ulong(position.y) * p.columns;
  uint local[SORT_DIGITS];
  for (uint d = 0; d < SORT_DIGITS; ++d) local[d] = 0;
  for (ulong i = first; i < last; ++i) ++local[uint(row[i] >> p.shift) & (SORT_DIGITS - 1)];
  for (uint d = 0; d < SORT_DIGITS; ++d) count[d] = local[d];
}

// Grid: rows.
kernel void sort_places(device uint* counts [[buffer(0)]], constant SortParams& p [[buffer(1)]],
                        uint row [[thread_position_in_grid]]) {
  device uint* const count = counts + ulong(row) * p.chunks * SORT_DIGITS;
  uint place = 0;
  for (uint d = 0; d < SORT_DIGITS; ++d) {
    for (uint chunk = 0; chunk < p.chunks; ++chunk) {
      const uint here = count[chunk * SORT_DIGITS + d];
      count[chunk * SORT_DIGITS + d] = place;
      place += here;
    }
  }
}

template <typename Key>
kernel void sort_move(device const Key* keys [[buffer(0)]], device const uint* order [[buffer(1)]],
                      device Key* to_keys [[buffer(2)]], device uint* to_order [[buffer(3)]],
                      device const uint* counts [[buffer(4)]], constant SortParams& p [[buffer(5)]],
                      uint2 position [[thread_position_in_grid]]) {
  device const uint* const count =
      counts + (ulong(position.y) * p.chunks + position.x) * SORT_DIGITS;
  const ulong first = ulong(position.x) * p.chunk, last = min(first + p.chunk, p.columns);
  const ulong row = ulong(position.y) * p.columns;
  uint places[SORT_DIGITS];
  for (uint d = 0; d < SORT_DIGITS; ++d) places[d] = count[d];
  for (ulong i = first; i < last; ++i) {
    const Key key = keys[row + i];
    const uint place = places[uint(key >> p.shift) & (SORT_DIGITS - 1)]++;
    to_keys[row + place] = key;
    to_order[row + place] = order[row + i];
  }
}

// ---- short rows ---------------------------------------------------------------------------------

// The result is in `order`. Grid: rows.
template <typename Key>
kernel void sort_rows(device Key* keys [[buffer(0)]], device uint* order [[buffer(1)]],
                      device Key* to_keys [[buffer(2)]], device uint* to_order [[buffer(3)]],
                      constant SortParams& p [[buffer(4)]], uint row [[thread_position_in_grid]]) {
  const uint n = uint(p.columns);
  const ulong at = ulong(row) * p.columns;
  device Key* from = keys + at;
  device uint* from_order = order + at;
  device Key* to = to_keys + at;
  device uint* other = to_order + at;
  // Runs of 8 by insertion.
  for (uint first = 0; first < n; first += 8) {
    const uint last = min(first + 8, n);
    for (uint i = first + 1; i < last; ++i) {
      const Key key = from[i];
      const uint which = from_order[i];
      uint place = i;
      while (place > first && from[place - 1] > key) {
        from[place] = from[place - 1];
        from_order[place] = from_order[place - 1];
        --place;
      }
      from[place] = key;
      from_order[place] = which;
    }
  }
  for (uint width = 8; width < n; width *= 2) {
    for (uint first = 0; first < n; first += 2 * width) {
      const uint middle = min(first + width, n), last = min(first + 2 * width, n);
      uint a = first, b = middle;
      for (uint i = first; i < last; ++i) {
        const bool left = a < middle && (b >= last || from[a] <= from[b]);
        const uint take = left ? a : b;
        to[i] = from[take];
        other[i] = from_order[take];
        a += left ? 1 : 0;
        b += left ? 0 : 1;
      }
    }
    device Key* const keys_before = from;
    device uint* const order_before = from_order;
    from = to;
    from_order = other;
    to = keys_before;
    other = order_before;
  }
  if (from_order != order + at) {
    for (uint i = 0; i < n; ++i) order[at + i] = from_order[i];
  }
}

// ---- the first k; grid: chunks, rows ------------------------------------------------------------

// The k smallest keys so far, in order; the first of equal ones.
template <typename Key>
inline uint keep_first(device Key* kept, device uint* which, uint count, uint k, Key key,
                       uint index) {
  if (count == k && key >= kept[k - 1]) return count;
  uint place = count < k ? count : k - 1;
  while (place > 0 && kept[place - 1] > key) {
    kept[place] = kept[place - 1];
    which[place] = which[place - 1];
    --place;
  }
  kept[place] = key;
  which[place] = index;
  return count < k ? count + 1 : count;
}

// A chunk that has less than k is the row's last: its padding comes after all elements.
template <typename Key>
inline void fill_rest(device Key* kept, device uint* which, uint count, uint k) {
  for (; count < k; ++count) {
    kept[count] = ~Key(0);
    which[count] = 0;
  }
}

template <typename T, typename Key>
kernel void select_first(device const T* in [[buffer(0)]], device Key* kept [[buffer(1)]],
                         device uint* which [[buffer(2)]], constant SortParams& p [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]]) {
  const ulong to = (ulong(position.y) * p.chunks + position.x) * p.k;
  const ulong first = ulong(position.x) * p.chunk, last = min(first + p.chunk, p.columns);
  device const T* const row = in + ulong(position.y) * p.columns;
  uint count = 0;
  Key most = ~Key(0);
  for (ulong i = first; i < last; ++i) {
    const Key key = sort_key<T, Key>(row[i], p.descending != 0);
    if (count == p.k && key >= most) continue;
    count = keep_first<Key>(kept + to, which + to, count, p.k, key, uint(i));
    most = kept[to + count - 1];
  }
  fill_rest<Key>(kept + to, which + to, count, p.k);
}

template <typename Key>
kernel void select_next(device const Key* keys [[buffer(0)]],
                        device const uint* order [[buffer(1)]], device Key* kept [[buffer(2)]],
                        device uint* which [[buffer(3)]], constant SortParams& p [[buffer(4)]],
                        uint2 position [[thread_position_in_grid]]) {
  const ulong to = (ulong(position.y) * p.chunks + position.x) * p.k;
  const ulong first = ulong(position.x) * p.chunk, last = min(first + p.chunk, p.columns);
  const ulong row = ulong(position.y) * p.columns;
  uint count = 0;
  for (ulong i = first; i < last; ++i) {
    count = keep_first<Key>(kept + to, which + to, count, p.k, keys[row + i], order[row + i]);
  }
  fill_rest<Key>(kept + to, which + to, count, p.k);
}

// Grid: k, rows. `order` has rows of `chunk`.
template <typename T, typename I>
kernel void sort_take(device const T* in [[buffer(0)]], device const uint* order [[buffer(1)]],
                      device T* values [[buffer(2)]], device I* indices [[buffer(3)]],
                      constant SortParams& p [[buffer(4)]],
                      uint2 position [[thread_position_in_grid]]) {
  const uint from = order[ulong(position.y) * p.chunk + position.x];
  const ulong to = ulong(position.y) * p.k + position.x;
  values[to] = in[ulong(position.y) * p.columns + from];
  indices[to] = I(from);
}

// Whether fewer than k of a row are more than the target. For a row with infinities this is
// unknown. Grid: rows.
template <typename I>
kernel void in_top_k(device const float* predictions [[buffer(0)]],
                     device const I* targets [[buffer(1)]], device bool* precision [[buffer(2)]],
                     constant ulong& columns [[buffer(3)]], constant long& k [[buffer(4)]],
                     uint row [[thread_position_in_grid]]) {
  const long target = long(targets[row]);
  const bool inside = target >= 0 && target < long(columns);
  device const float* const line = predictions + ulong(row) * columns;
  const float at = inside ? line[target] : NAN;
  long more = isfinite(at) ? 0 : k;
  for (ulong first = 0; first < columns && more < k; first += 256) {
    const ulong last = min(first + 256, columns);
    uint here = 0, unclear = 0;
    for (ulong i = first; i < last; ++i) {
      here += line[i] > at ? 1 : 0;
      unclear |= isfinite(line[i]) ? 0 : 1;
    }
    more = unclear != 0 ? k : more + long(here);
  }
  precision[row] = more < k;
}

#define SORT_TYPE(type, key)                                   \
  INSTANTIATE_KERNEL("sort_keys_" #type, sort_keys, type, key) \
  INSTANTIATE_KERNEL("select_first_" #type, select_first, type, key)
SORT_TYPE(float, uint)
SORT_TYPE(half, uint)
IF_BFLOAT(SORT_TYPE(bfloat, uint))
SORT_TYPE(char, uint)
SORT_TYPE(short, uint)
SORT_TYPE(int, uint)
SORT_TYPE(long, ulong)
SORT_TYPE(uchar, uint)
SORT_TYPE(ushort, uint)
SORT_TYPE(uint, uint)
SORT_TYPE(ulong, ulong)

#define SORT_KEY(key)                                     \
  INSTANTIATE_KERNEL("sort_count_" #key, sort_count, key) \
  INSTANTIATE_KERNEL("sort_move_" #key, sort_move, key)   \
  INSTANTIATE_KERNEL("sort_rows_" #key, sort_rows, key)   \
  INSTANTIATE_KERNEL("select_next_" #key, select_next, key)
SORT_KEY(uint)
SORT_KEY(ulong)

#define TAKE(bytes, type)                                                 \
  INSTANTIATE_KERNEL("sort_take_" bytes "_short", sort_take, type, short) \
  INSTANTIATE_KERNEL("sort_take_" bytes "_int", sort_take, type, int)     \
  INSTANTIATE_KERNEL("sort_take_" bytes "_long", sort_take, type, long)
TAKE("1", uchar)
TAKE("2", ushort)
TAKE("4", uint)
TAKE("8", ulong)

INSTANTIATE_KERNEL("in_top_k_int", in_top_k, int)
INSTANTIATE_KERNEL("in_top_k_long", in_top_k, long)
