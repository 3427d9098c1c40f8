// Functions over the lanes of a simdgroup, on warps. A lane that is not active here gives no value;
// which lanes those are is the same for all that call.
#pragma once

namespace _msl {

// x of another lane; any value where that one is not in `lanes`.
template <class T>
inline T from_lane(unsigned lanes, const T& x, unsigned source) {
  constexpr unsigned words = (sizeof(T) + 3) / 4;
  unsigned w[words] = {};
  __builtin_memcpy(w, (const void*)&x, sizeof(T));
  for (unsigned i = 0; i < words; ++i)
    w[i] = unsigned(__nvvm_shfl_sync_idx_i32(lanes, int(w[i]), int(source), 0x1f));
  T out;
  __builtin_memcpy((void*)&out, w, sizeof(T));
  return out;
}

// The lanes of this lane's group of `Width`, and the number of the first of them.
template <int Width>
inline unsigned group_base() {
  return _msl_lane() / Width * Width;
}
template <int Width>
constexpr unsigned group_mask = Width == 32 ? ~0u : (1u << Width) - 1;

// The same order in every run: halves of the group where all are active, else ascending lanes.
template <class Op, int Width, class T>
inline T reduced(unsigned long, T x) {
  const unsigned lanes = active_lanes(), lane = _msl_lane();
  if (lanes == ~0u) {
    for (unsigned apart = Width / 2; apart; apart /= 2) x = Op::of(x, from_lane(lanes, x, lane ^ apart));
    return x;
  }
  T sum = x;
  bool any = false;
  for (unsigned i = 0; i < Width; ++i) {
    const unsigned source = group_base<Width>() + i;
    const T there = from_lane(lanes, x, source);
    if (lanes >> source & 1) {
      sum = any ? Op::of(sum, there) : there;
      any = true;
    }
  }
  return sum;
}
template <class Op, int Width, bool Inclusive, class T>
inline T scanned(unsigned long, T x) {
  const unsigned lanes = active_lanes(), lane = _msl_lane();
  T sum = T(Op::kIdentity);
  for (unsigned i = 0; i < Width; ++i) {
    const unsigned source = group_base<Width>() + i;
    const T there = from_lane(lanes, x, source);
    if ((lanes >> source & 1) && (Inclusive ? source <= lane : source < lane))
      sum = Op::of(sum, there);
  }
  return sum;
}

template <class T>
inline T moved(unsigned long, const Moved<T>& m) {
  const unsigned lanes = active_lanes();
  const bool valid = m.source >= 0 && m.source < 32 && (lanes >> m.source & 1);
  const unsigned source = valid ? unsigned(m.source) : _msl_lane();
  const T value = from_lane(lanes, m.value, source), fill = from_lane(lanes, m.fill, source);
  return valid && m.from_fill ? fill : value;
}
template <class T>
inline T moved(unsigned long, T x, int from) {
  const unsigned lanes = active_lanes();
  const bool valid = from >= 0 && from < 32 && (lanes >> from & 1);
  return from_lane(lanes, x, valid ? unsigned(from) : _msl_lane());
}

// x: lanes of the group with a true vote, y: active ones.
template <int Width>
inline uint2 vote(unsigned long, bool yes) {
  const unsigned lanes = active_lanes(), base = group_base<Width>();
  const unsigned votes = __nvvm_vote_ballot_sync(lanes, yes);
  return uint2(votes >> base & group_mask<Width>, lanes >> base & group_mask<Width>);
}
template <int Width, class T>
inline T from_first(unsigned long, T x) {
  const unsigned lanes = active_lanes(), base = group_base<Width>();
  return from_lane(lanes, x, base + unsigned(__builtin_ctz(lanes >> base & group_mask<Width>)));
}

}  // namespace _msl
