"""Barriers and threadgroup memory against sequential results; atomics under contention."""

from __future__ import annotations

import numpy as np
import pytest

from .shaders import library

RNG = np.random.default_rng(3)
SOURCE = """
// Tree sum in static memory.
kernel void tree(device const float* in, device float* out, uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]],
                 uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  threadgroup float shared[1024];
  shared[t] = in[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint width = 1; width < n; width *= 2) {
    float other = t % (2 * width) == 0 && t + width < n ? shared[t + width] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[t] += other;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) out[g] = shared[0];
}
// Inclusive scan in passed memory, two buffers taking turns.
kernel void scan(device int* x, threadgroup int* a [[threadgroup(0)]], threadgroup int* b [[threadgroup(1)]],
                 uint t [[thread_position_in_threadgroup]], uint i [[thread_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  threadgroup int* from = a; threadgroup int* to = b;
  from[t] = x[i];
  for (uint step = 1; step < n; step *= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    to[t] = from[t] + (t >= step ? from[t - step] : 0);
    threadgroup int* swap = from; from = to; to = swap;
  }
  x[i] = from[t];
}
kernel void bitonic(device float* x, uint t [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  for (uint k = 2; k <= n; k *= 2)
    for (uint j = k / 2; j > 0; j /= 2) {
      uint other = t ^ j;
      if (other > t) {
        bool up = (t & k) == 0;
        float a = x[t], b = x[other];
        if ((a > b) == up) { x[t] = b; x[other] = a; }
      }
      threadgroup_barrier(mem_flags::mem_device);
    }
}
#define TILE 8
kernel void transposed(device const float* in, device float* out, constant uint2& size, uint2 at [[thread_position_in_grid]],
                       uint2 t [[thread_position_in_threadgroup]], uint2 g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[TILE][TILE + 1], unused;
  if (at.x < size.x && at.y < size.y) tile[t.y][t.x] = in[at.y * size.x + at.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint2 to = g.yx * TILE + t;
  if (to.x < size.y && to.y < size.x) out[to.y * size.y + to.x] = tile[t.x][t.y];
  unused = 0;
}
// Some threads leave before the barrier; the others go on.
kernel void leavers(device int* out, uint t [[thread_index_in_threadgroup]]) {
  threadgroup int shared[64];
  shared[t] = 1;
  if (t % 2) return;
  for (uint round = 0; round < 3; ++round) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == round * 2) { int s = 0; for (uint i = 0; i < 64; ++i) s += shared[i]; out[round] = s; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[t] += 1;
  }
}
// Barriers and simdgroup functions mixed, in different lanes at different times.
kernel void mixed(device int* out, uint t [[thread_index_in_threadgroup]], uint s [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup int sums[32];
  int mine = simd_sum(int(t));
  if (s % 2) mine += simd_max(int(lane));
  if (lane == 0) sums[s] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int all = simd_sum(lane < 4 ? sums[lane] : 0);
  out[t] = all;
}
struct Big { float values[3000]; };
// More local memory than a default fiber stack has.
kernel void large_frames(device float* out, constant uint& n, uint t [[thread_index_in_threadgroup]]) {
  Big big[4];
  for (uint k = 0; k < 4; ++k) for (uint i = 0; i < 3000; ++i) big[k].values[i] = float((i * n + t + k) % 97);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 4; ++k) for (uint i = 0; i < 3000; ++i) sum += big[k].values[(i * 7) % 3000];
  out[t] = sum;
}
"""


@pytest.fixture(scope="module")
def shader():
    return library(SOURCE)


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 100, 256, 1024])
def test_tree_sum(size, shader):
    groups = 5
    x = RNG.integers(-9, 10, size * groups).astype(np.float32)
    out = np.zeros(groups, np.float32)
    shader["tree"].run(len(x), size, {0: x, 1: out})
    np.testing.assert_array_equal(out, x.reshape(groups, size).sum(1))


def test_last_threadgroup_is_clipped(shader):
    """dispatchThreads with a grid that is no multiple: threads_per_threadgroup says how many there are."""
    x = np.ones(1000, np.float32)
    out = np.zeros(4, np.float32)
    shader["tree"].run(1000, 300, {0: x, 1: out})
    np.testing.assert_array_equal(out, [300, 300, 300, 100])


@pytest.mark.parametrize("size", [1, 7, 64, 513])
def test_scan_in_passed_memory(size, shader):
    x = RNG.integers(0, 100, size * 3).astype(np.int32)
    expected = np.cumsum(x.reshape(3, size), 1).ravel()
    shader["scan"].run(len(x), size, {0: x}, threadgroup_memory={0: 4 * size, 1: 4 * size})
    np.testing.assert_array_equal(x, expected)


def test_bitonic_sort(shader):
    x = RNG.normal(size=512).astype(np.float32)
    expected = np.sort(x)
    shader["bitonic"].run(512, 512, {0: x})
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_tiled_transpose(workers, shader):
    x = RNG.normal(size=(37, 51)).astype(np.float32)
    out = np.zeros((51, 37), np.float32)
    kernel = shader["transposed"]
    assert kernel.static_threadgroup_bytes == 8 * 9 * 4 + 16
    kernel.run((56, 40), (8, 8), {0: x, 1: out, 2: np.uint32([51, 37])}, workers=workers)
    np.testing.assert_array_equal(out, x.T)


def test_threads_may_leave_before_a_barrier(shader):
    out = np.zeros(3, np.int32)
    shader["leavers"].run(64, 64, {0: out})
    np.testing.assert_array_equal(out, [64, 64 + 32, 64 + 64])


def test_barriers_and_simdgroups_mixed(shader):
    out = np.zeros(128, np.int32)
    shader["mixed"].run(128, 128, {0: out})
    np.testing.assert_array_equal(out, np.full(128, np.arange(128).sum() + 2 * 31))


def test_large_local_arrays_on_fibers(shader):
    out = np.zeros(64, np.float32)
    shader["large_frames"].run(64, 64, {0: out, 1: np.uint32(5)})
    i = np.arange(3000)
    t, k = np.arange(64)[:, None, None], np.arange(4)[None, :, None]
    np.testing.assert_array_equal(out, ((i * 5 + t + k) % 97).sum((1, 2)))


# ---- pointers that are cast
CASTS = """
struct Pair { TYPE a, b; };
kernel void copies(device const char* in, device char* out, constant int& shift, threadgroup char* shared [[threadgroup(0)]],
                   uint t [[thread_index_in_threadgroup]]) {
  threadgroup Pair* to = (threadgroup Pair*)(shared + shift + t * sizeof(Pair));
  *to = *(device const Pair*)(in + shift + t * sizeof(Pair));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  *(device Pair*)(out + shift + t * sizeof(Pair)) = *to;
}
kernel void doubled(device const char* in, device char* out, constant int& shift, uint t [[thread_position_in_grid]]) {
  device const TYPE* from = (device const TYPE*)(in + shift);
  device TYPE* to = (device TYPE*)(out + shift);
  to[t] = from[t] + from[t];
}
kernel void summed(device const char* in, device char* out, constant int& shift, uint t [[thread_position_in_grid]]) {
  device const TYPE* from = (device const TYPE*)(in + shift);
  TYPE sum = from[0];
  for (int i = 1; i < 32; ++i) sum += from[i];
  *(device TYPE*)(out + shift) = sum;
}
"""
ELEMENTS = {
    "float": np.float32,
    "half": np.float16,
    "int": np.int32,
    "uchar": np.uint8,
    "ulong": np.uint64,
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("element", ELEMENTS)
def test_vectors_need_no_more_alignment_than_their_elements(element, width, checked):
    """A GPU loads a float4 from any address of a float; once this was a fault, with aligned instructions."""
    kind = ELEMENTS[element]
    size = np.dtype(kind).itemsize
    lanes = 4 if width == 3 else width
    shader = library(CASTS.replace("TYPE", f"{element}{width}"), checked=checked)
    count = 33 * 2 * lanes
    for shift in range(lanes):
        x = RNG.integers(0, 3, count + lanes).astype(kind)
        part = slice(shift, shift + count)
        room = -(-(count + lanes) * size // 16) * 16
        found = {}
        for name, threads in (("copies", 33), ("doubled", 66), ("summed", 1)):
            out = np.zeros_like(x)
            shader[name].run(
                *(threads, 33, {0: x, 1: out, 2: np.int32(shift * size)}),
                threadgroup_memory={0: room} if name == "copies" else {},
            )
            found[name] = out[part].reshape(-1, lanes)[:, :width]
        whole = x[part].reshape(-1, lanes)[:, :width]
        np.testing.assert_array_equal(found["copies"], whole)
        np.testing.assert_array_equal(found["doubled"], whole + whole)
        np.testing.assert_array_equal(found["summed"][0], whole[:32].sum(0).astype(kind))


LISTS = """
template <short width>
kernel void lists(constant int& tokens, device const char* chosen, device uint* counts, device int* out,
                  threadgroup char* shared [[threadgroup(0)]], ushort me [[thread_position_in_threadgroup]],
                  ushort threads_ [[threads_per_threadgroup]]) {
  device int* list = out + me * tokens;
  uint n = 0;
  for (int first = 0; first < tokens; first += threads_) {
    if (first + me < tokens) {
      device const int* row = (device const int*)(chosen + (first + me) * width * 4);
      threadgroup ushort* to = (threadgroup ushort*)shared + me * width;
      #pragma unroll(width)
      for (short i = 0; i < width; ++i) to[i] = row[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (short t = 0; t < threads_ && first + t < tokens; ++t) {
      threadgroup const ushort* from = (threadgroup const ushort*)shared + t * width;
      short place = 0;
      #pragma unroll(width)
      for (short i = 0; i < width; ++i) place += (from[i] == me) * (i + 1);
      if (place) list[n++] = (first + t) * width + place - 1;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  counts[me] = n;
}
typedef decltype(lists<2>) lists_t;
template [[host_name("lists2")]] kernel lists_t lists<2>;
template [[host_name("lists16")]] kernel lists_t lists<16>;
"""


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("width", [2, 16])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_lists_of_who_was_chosen(width, workers, shift):
    """Rows of 32-bit numbers become rows of 16 bits in memory that is declared as char*, and all threads read them."""
    tokens = 200
    chosen = np.array([RNG.permutation(16)[:width] for _ in range(tokens)], np.int32)
    # At any address of an int.
    rows = np.concatenate([np.zeros(shift, np.int32), chosen.ravel()])[shift:]
    counts, out = np.zeros(16, np.uint32), np.zeros((16, tokens), np.int32)
    buffers = {0: np.int32(tokens), 1: rows, 2: counts, 3: out}
    library(LISTS)[f"lists{width}"].run(
        16, 16, buffers, threadgroup_memory={0: 16 * width * 2}, workers=workers
    )
    for number in range(16):
        expected = np.flatnonzero(chosen.ravel() == number)
        assert counts[number] == len(expected)
        np.testing.assert_array_equal(out[number, : len(expected)], expected)


# ---- atomics
ATOMICS = """
kernel void contend(device atomic_uint* u, device atomic_int* s, device atomic<float>* f, device atomic_ulong* w,
                    device atomic_bool* flag, uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&u[0], 3, memory_order_relaxed);
  atomic_fetch_sub_explicit(&u[1], 1u, memory_order_relaxed);
  atomic_fetch_or_explicit(&u[2], 1u << (i % 32), memory_order_relaxed);
  atomic_fetch_and_explicit(&u[3], ~(1u << (i % 16)), memory_order_relaxed);
  atomic_fetch_xor_explicit(&u[4], i, memory_order_relaxed);
  atomic_fetch_max_explicit(&u[5], i, memory_order_relaxed);
  atomic_fetch_min_explicit(&u[6], i, memory_order_relaxed);
  atomic_fetch_max_explicit(&s[0], int(i) - 500, memory_order_relaxed);
  atomic_fetch_min_explicit(&s[1], int(i) - 500, memory_order_relaxed);
  atomic_fetch_add_explicit(&s[2], int(i % 2) * 2 - 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&f[0], 0.5f, memory_order_relaxed);
  atomic_fetch_sub_explicit(&f[1], 1.0f, memory_order_relaxed);
  atomic_max_explicit(&w[0], ulong(i) << 33, memory_order_relaxed);
  atomic_min_explicit(&w[1], ulong(i) << 33, memory_order_relaxed);
  uint expected = atomic_load_explicit(&u[7], memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&u[7], &expected, expected * 1664525u + 1u, memory_order_relaxed, memory_order_relaxed)) {}
  atomic_store_explicit(&flag[0], true, memory_order_relaxed);
  if (i == 17) atomic_store_explicit((device atomic_int*)&s[3], 99, memory_order_relaxed);
}
// Every thread takes a ticket: all are different.
kernel void tickets(device atomic_uint* counter, device uint* taken, uint i [[thread_position_in_grid]]) {
  taken[i] = atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
}
kernel void exchange(device atomic_int* place, device atomic_int* sum, uint i [[thread_position_in_grid]]) {
  int before = atomic_exchange_explicit(place, int(i), memory_order_relaxed);
  atomic_fetch_add_explicit(sum, before, memory_order_relaxed);
}
// The sample's way: a float buffer's bits as integers, and compare-exchange.
kernel void by_bits(device float* sum, uint i [[thread_position_in_grid]]) {
  device atomic_uint* bits = reinterpret_cast<device atomic_uint*>(sum);
  uint old = atomic_load_explicit(bits, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(bits, &old, as_type<uint>(as_type<float>(old) + 1.0f), memory_order_relaxed, memory_order_relaxed));
}
kernel void histogram(device const uchar* in, device atomic_uint* out, uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint bins[256];
  threadgroup atomic<float> total;
  for (uint b = t; b < 256; b += 64) atomic_store_explicit(&bins[b], 0, memory_order_relaxed);
  if (t == 0) atomic_store_explicit(&total, 0.0f, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&bins[in[i]], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&total, 1.0f, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint b = t; b < 256; b += 64) atomic_fetch_add_explicit(&out[b], atomic_load_explicit(&bins[b], memory_order_relaxed), memory_order_relaxed);
  if (t == 0) atomic_fetch_add_explicit(&out[256], uint(atomic_load_explicit(&total, memory_order_relaxed)), memory_order_relaxed);
}
"""
COUNT = 20000


@pytest.fixture(scope="module")
def atomics():
    return library(ATOMICS)


@pytest.mark.parametrize("workers", [1, 4])
def test_contended_atomics(workers, atomics):
    u = np.array([0, COUNT, 0, 0xFFFFFFFF, 0, 0, 0xFFFFFFFF, 1], np.uint32)
    s, f = np.zeros(4, np.int32), np.zeros(2, np.float32)
    w, flag = np.array([0, 2**64 - 1], np.uint64), np.zeros(1, bool)
    atomics["contend"].run(COUNT, 128, {0: u, 1: s, 2: f, 3: w, 4: flag}, workers=workers)
    i = np.arange(COUNT, dtype=np.uint32)
    state = 1
    for _ in range(COUNT):
        state = (state * 1664525 + 1) % 2**32
    expected = [3 * COUNT, 0, 0xFFFFFFFF, 0xFFFF0000, np.bitwise_xor.reduce(i), COUNT - 1, 0, state]
    np.testing.assert_array_equal(u, np.array(expected, np.uint32))
    np.testing.assert_array_equal(s, [COUNT - 501, -500, 0, 99])
    np.testing.assert_array_equal(f, [COUNT / 2, -COUNT])  # exact in float32
    np.testing.assert_array_equal(w, np.array([(COUNT - 1) << 33, 0], np.uint64))
    assert flag[0]


def test_tickets_are_unique(atomics):
    taken, counter = np.zeros(COUNT, np.uint32), np.zeros(1, np.uint32)
    atomics["tickets"].run(COUNT, 32, {0: counter, 1: taken}, workers=4)
    np.testing.assert_array_equal(np.sort(taken), np.arange(COUNT))


def test_exchange_loses_nothing(atomics):
    place, total = np.zeros(1, np.int32), np.zeros(1, np.int32)
    atomics["exchange"].run(COUNT, 32, {0: place, 1: total}, workers=4)
    assert total[0] + place[0] == np.arange(COUNT).sum()


def test_float_add_by_compare_exchange(atomics):
    total = np.zeros(1, np.float32)
    atomics["by_bits"].run(COUNT, 32, {0: total}, workers=4)
    assert total[0] == COUNT


def test_threadgroup_atomics(atomics):
    x = RNG.integers(0, 256, 64 * 100).astype(np.uint8)
    out = np.zeros(257, np.uint32)
    atomics["histogram"].run(len(x), 64, {0: x, 1: out}, workers=3)
    np.testing.assert_array_equal(out, [*np.bincount(x, minlength=256), len(x)])


def test_scalars_are_shared_too():
    """One variable that one thread writes and all read behind the barrier, in several forms that invite an optimiser
    to keep it to itself."""
    shader = library("""
        kernel void shared_scalars(device int* out, uint t [[thread_index_in_threadgroup]]) {
          threadgroup int last, first, count[1];
          last = int(t);
          if (t == 5) first = 41;
          if (t == 0) count[0] = 0;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          int seen = last;
          count[0] += 1;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          if (t == 7) first += 1;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          out[3 * t] = seen; out[3 * t + 1] = first; out[3 * t + 2] = count[0];
        }""")
    out = np.zeros((64, 3), np.int32)
    shader["shared_scalars"].run(64, 64, {0: out})
    assert (out[:, 0] == out[0, 0]).all()  # some thread's, and the same for all
    np.testing.assert_array_equal(out[:, 1:], [[42, 64]] * 64)
