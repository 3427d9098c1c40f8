// Part of runtime.h, in its namespace: the parts of the entry points of kernels on a GPU.

// The first parameter of every entry point; the runtime fills it in (hostmetal/src/cuda/stream.cc).
struct Grid {
  unsigned threads[3], threadgroups[3];
  unsigned first[3];  // of the threadgroups of this launch, where a dispatch takes several
};

// Where this thread is. False: beyond the grid's edge.
inline __attribute__((always_inline)) bool enter(const Grid& g, GpuLaunch& l, Position& p) {
  const unsigned size[3] = {unsigned(__nvvm_read_ptx_sreg_ntid_x()),
                            unsigned(__nvvm_read_ptx_sreg_ntid_y()),
                            unsigned(__nvvm_read_ptx_sreg_ntid_z())};
  const unsigned group[3] = {unsigned(__nvvm_read_ptx_sreg_ctaid_x()),
                             unsigned(__nvvm_read_ptx_sreg_ctaid_y()),
                             unsigned(__nvvm_read_ptx_sreg_ctaid_z())};
  p.local[0] = unsigned(__nvvm_read_ptx_sreg_tid_x());
  p.local[1] = unsigned(__nvvm_read_ptx_sreg_tid_y());
  p.local[2] = unsigned(__nvvm_read_ptx_sreg_tid_z());
  p.index = p.local[0] + size[0] * (p.local[1] + size[1] * p.local[2]);
  bool whole = true;
  for (int i = 0; i < 3; ++i) {
    l.threads[i] = g.threads[i];
    l.threadgroup_size[i] = size[i];
    l.threadgroups[i] = g.threadgroups[i];
    p.threadgroup_position[i] = group[i] + g.first[i];
    const unsigned left = g.threads[i] - p.threadgroup_position[i] * size[i];
    p.size[i] = left < size[i] ? left : size[i];
    whole = whole && p.size[i] == size[i];
  }
  if (whole) return true;
  // A clipped threadgroup has its threads in a row, as in Metal: simdgroups are full except for the
  // last.
  if (p.index >= p.size[0] * p.size[1] * p.size[2]) return false;
  if (p.size[1] != 1 || p.size[2] != 1 || p.local[0] != p.index) {
    p.local[0] = p.index % p.size[0];
    p.local[1] = p.index / p.size[0] % p.size[1];
    p.local[2] = p.index / (p.size[0] * p.size[1]);
  }
  return true;
}

// Threadgroup arguments lie one after the other, at offsets that the runtime gives. Matrices that Hopper's unit reads
// lie at multiples of 1024.
#if _MSL_SM >= 90
#define _MSL_THREADGROUP_ALIGNMENT 1024
#else
#define _MSL_THREADGROUP_ALIGNMENT 16
#endif
extern threadgroup unsigned char threadgroup_memory[] __asm__("_msl_threadgroup_memory")
    __attribute__((aligned(_MSL_THREADGROUP_ALIGNMENT)));

// `constant T&` as a parameter: a pointer, or nullptr and the value, where T is small.
constexpr unsigned long kByValueBytes = 256;  // as in hostmetal/src/cuda/stream.cc
template <class T, bool small = sizeof(T) <= kByValueBytes>
struct Passed {
  const device char* pointer;
  alignas(alignof(T) < 8 ? 8 : alignof(T)) T value;
};
template <class T>
struct Passed<T, false> {
  const device char* pointer;
};
template <unsigned alignment>
struct Unit : metal::type_identity<uchar> {};
template <>
struct Unit<2> : metal::type_identity<ushort> {};
template <>
struct Unit<4> : metal::type_identity<uint> {};
template <class T, bool small = sizeof(T) <= kByValueBytes>
struct Fetched {
  T value;
  inline __attribute__((always_inline)) explicit Fetched(const Passed<T>& from)
      : value(from.value) {
    if (!from.pointer) return;
    // In loads from global memory, each of which may be unused.
    using U = typename Unit<(alignof(T) < 4 ? alignof(T) : 4)>::type;
    auto* to = reinterpret_cast<U*>(&value);
#pragma clang loop unroll(full)
    for (unsigned i = 0; i < sizeof(T) / sizeof(U); ++i) {
      const U unit = reinterpret_cast<const device U*>(from.pointer)[i];
      __builtin_memcpy((void*)(to + i), (const void*)&unit, sizeof unit);
    }
  }
  const void* at() const { return &value; }
};
template <class T>
struct Fetched<T, false> {
  const void* pointer;
  explicit Fetched(const Passed<T>& from) : pointer((const void*)from.pointer) {}
  const void* at() const { return pointer; }
};
