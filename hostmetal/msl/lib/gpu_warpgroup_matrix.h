// Products of four simdgroups together by Hopper's matrix unit, which reads threadgroup memory itself and multiplies
// while the simdgroups go on. For shaders that find __HAVE_WARPGROUP_MATRIX__.
#pragma once

namespace _msl {

// Sums of 64 rows, 16 a simdgroup: of 8 columns each lane has the four of multiply_16.
#define _MSL_SUMS_8(c, i) \
  "+f"((c)[i].part[0]), "+f"((c)[i].part[1]), "+f"((c)[i].part[2]), "+f"((c)[i].part[3])
#define _MSL_SUMS_16(c, i) _MSL_SUMS_8(c, i), _MSL_SUMS_8(c, i + 1)
#define _MSL_SUMS_32(c, i) _MSL_SUMS_16(c, i), _MSL_SUMS_16(c, i + 2)
#define _MSL_SUMS_64(c, i) _MSL_SUMS_32(c, i), _MSL_SUMS_32(c, i + 4)
#define _MSL_SUMS_128(c, i) _MSL_SUMS_64(c, i), _MSL_SUMS_64(c, i + 8)
#define _MSL_SUMS_256(c, i) _MSL_SUMS_128(c, i), _MSL_SUMS_128(c, i + 16)

#define _MSL_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define _MSL_REGISTERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define _MSL_REGISTERS_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define _MSL_REGISTERS_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define _MSL_REGISTERS_256 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, " \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, " \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"

// Where a matrix lies: rows of 64 elements, eight of them in 1024 bytes at a multiple of that, 16 bytes c of row r at
// place c ^ r % 8. With more than 64 columns, the next 64 lie `next` bytes further.
inline unsigned long matrix_at(threadgroup const void* at, unsigned next) {
  const unsigned long address = (unsigned)(unsigned long)at;
  return (address & 0x3ffff) >> 4 | (unsigned long)(next >> 4) << 16 | 64ul << 32 | 1ul << 62;
}

// The same number: what depends on it is reckoned here, and not kept in registers from before.
inline unsigned long here(unsigned long at) {
  asm volatile("" : "+l"(at));
  return at;
}
inline unsigned here(unsigned number) {
  asm volatile("" : "+r"(number));
  return number;
}

// The instruction for so many columns of b; `left` names a's operands, `turned` says of a and b whether they are.
#define _MSL_MULTIPLY(columns, type, left, turned, ...)                                      \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %[adds], 0; "                                 \
               "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {"    \
               _MSL_REGISTERS_##columns "}, " left ", %[b], p, 1, 1, " turned "; }"          \
               : _MSL_SUMS_##columns(c, 0)                                                   \
               : __VA_ARGS__, [b] "l"(b), [adds] "r"((unsigned)adds),                        \
                 [turned_b] "n"(columns_b ? 1 : 0))
#define _MSL_MULTIPLY_AS(columns, left, turned, ...)                \
  if constexpr (metal::is_same_v<T, half>) {                        \
    _MSL_MULTIPLY(columns, "f16", left, turned, __VA_ARGS__);       \
  } else {                                                          \
    _MSL_MULTIPLY(columns, "bf16", left, turned, __VA_ARGS__);      \
  }

// c = a b, or c += a b: a of 64 rows and 16 columns, b of 16 rows. columns_a, columns_b: the lines in memory are a's
// columns, b's rows. Runs between begin_products and wait_for_products, and c is not touched meanwhile. The second has a
// in registers: of each simdgroup its 16 rows, as multiply_16 has them.
#define _MSL_MULTIPLY_64(columns)                                                                         \
  template <class T, bool columns_a, bool columns_b, class Sums>                                          \
  inline __attribute__((always_inline)) void multiply_64(thread Sums (&c)[columns / 8], unsigned long a,  \
                                                         unsigned long b, bool adds) {                    \
    _MSL_MULTIPLY_AS(columns, "%[a]", "%[turned_a], %[turned_b]", [a] "l"(a),                             \
                     [turned_a] "n"(columns_a ? 1 : 0))                                                   \
  }                                                                                                       \
  template <class T, bool columns_b, class Sums>                                                          \
  inline __attribute__((always_inline)) void multiply_64(                                                 \
      thread Sums (&c)[columns / 8], thread const unsigned (&a)[4], unsigned long b, bool adds) {         \
    _MSL_MULTIPLY_AS(columns, "{%[a0], %[a1], %[a2], %[a3]}", "%[turned_b]", [a0] "r"(a[0]),              \
                     [a1] "r"(a[1]), [a2] "r"(a[2]), [a3] "r"(a[3]))                                      \
  }
_MSL_MULTIPLY_64(16)
_MSL_MULTIPLY_64(32)
_MSL_MULTIPLY_64(64)
_MSL_MULTIPLY_64(128)
_MSL_MULTIPLY_64(256)

#undef _MSL_MULTIPLY
#undef _MSL_MULTIPLY_AS
#undef _MSL_MULTIPLY_64
#undef _MSL_SUMS_8
#undef _MSL_SUMS_16
#undef _MSL_SUMS_32
#undef _MSL_SUMS_64
#undef _MSL_SUMS_128
#undef _MSL_SUMS_256
#undef _MSL_REGISTERS_16
#undef _MSL_REGISTERS_32
#undef _MSL_REGISTERS_64
#undef _MSL_REGISTERS_128
#undef _MSL_REGISTERS_256

inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int batches>
inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(batches) : "memory");
}
// Sums that have been waited for while others are multiplied: what reads them stays behind this.
template <class Sums, int n>
inline __attribute__((always_inline)) void read_products(thread Sums (&c)[n]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < n; ++i) {
    asm volatile("" : "+f"(c[i].part[0]), "+f"(c[i].part[1]), "+f"(c[i].part[2]), "+f"(c[i].part[3]) : : "memory");
  }
}
// Between what this thread has written to threadgroup memory and a barrier behind which the unit reads it.
inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }


// From threadgroup memory, which show_to_products showed and a barrier followed: so many bytes, a multiple of 16, to
// device memory, or as floats added to those there. One thread begins them, ends them, and waits until they are done.
inline void store_bytes(device void* to, threadgroup const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               :
               : "l"((unsigned long)to), "r"((unsigned)(unsigned long)from), "r"(bytes)
               : "memory");
}
inline void add_floats(device float* to, threadgroup const float* from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :
               : "l"((unsigned long)to), "r"((unsigned)(unsigned long)from), "r"(bytes)
               : "memory");
}
// Before they begin: behind what this thread has learnt of others' memory.
inline void begin_stores() { asm volatile("fence.proxy.async;" : : : "memory"); }
inline void end_stores() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }
inline void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" : : : "memory"); }
// A number in device memory by which threadgroups tell each other that what they wrote before it is there: until it is
// this one, and that it is.
inline void wait_for_number(device const void* at, unsigned number) {
  unsigned there;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"((unsigned long)at) : "memory");
  } while (there != number);
}
inline void tell_number(device void* at, unsigned number) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"((unsigned long)at), "r"(number) : "memory");
}
// Until they have been read.
inline void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory"); }

// Simdgroups of a threadgroup that do different work. A place, of 1 to 15, where so many threads meet: some wait there
// for the others, who only say that they came. All of a simdgroup come together.
inline void meet_at(unsigned place, unsigned threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(place), "r"(threads) : "memory");
}
inline void come_to(unsigned place, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(place), "r"(threads) : "memory");
}
// Where some lanes of a simdgroup were elsewhere before the others come with them.
inline void all_lanes() { asm volatile("bar.warp.sync 0xffffffff;" : : : "memory"); }
// Four simdgroups, from a multiple of four on, have so many registers a lane from here on; those who give come first.
template <int registers>
inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
}
template <int registers>
inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(registers));
}

}  // namespace _msl
