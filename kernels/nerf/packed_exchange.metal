// How the workers of a run add up gradients where each has a GPU and may read the others' memory: each
// puts its own into its window, says so there, waits until the others have said so of theirs, and adds
// up all of them in the order of workers, so that all have the same bits. The host waits for nothing,
// and goes ahead by some steps. Windows are no buffers of this process, so they come as addresses
// (python/metal_ops/programs/windows.py).
//
// A window has two halves, which take turns by the parity of steps, and a PackedSaid. Two are enough:
// who writes a half at step s has seen all others say s - 1, which each said only after its own means
// of s - 2, the last that were read there. The same holds for the numbers.

#include <metal_stdlib>

#include "kernels/msl/fence.h"
#include "kernels/msl/instantiate.h"

using namespace metal;

// Where windows are: of int64, which devices of TensorFlow have.
struct PackedWindows {
  long half_bytes, n_workers, rank;
  long begins[1];  // of each worker's
};

// A step's message to the other workers: its loss, slots taken and slots that would have been
// taken, of both kinds, whose mean is wanted; and two numbers of the host, whose sum is wanted.
#define PACKED_MEANS 5

// Begins as zeros. All is read and written by atomics: other devices are told at once.
struct PackedSaid {
  atomic_uint step;  // the last one whose gradients and numbers are there
  uint beside[31];
  atomic_float numbers[2][32];
  atomic_uint gave_up;  // this worker's own
};

inline device PackedSaid* packed_said(device const PackedWindows& windows, long worker) {
  const ulong at = ulong(windows.begins[worker] + 2 * windows.half_bytes);
  return reinterpret_cast<device PackedSaid*>(at);
}
inline device float* packed_half(device const PackedWindows& windows, long worker, uint step) {
  const ulong at = ulong(windows.begins[worker] + (step % 2) * windows.half_bytes);
  return reinterpret_cast<device float*>(at);
}

// Puts values times a number into a step's half, from value `begin` on. A thread has four.
template <typename T>
kernel void packed_exchange_put(device const PackedWindows& windows [[buffer(0)]],
                                device const T* values [[buffer(1)]],
                                device uint* done [[buffer(2)]], constant uint& step [[buffer(3)]],
                                constant uint& begin [[buffer(4)]], constant uint& n [[buffer(5)]],
                                constant float& by [[buffer(6)]],
                                uint i [[thread_position_in_grid]]) {
  device float* const put = packed_half(windows, windows.rank, step) + begin;
  const uint first = 4 * i;
  if (first + 4 <= n) {
    *reinterpret_cast<device float4*>(put + first) =
        float4(*reinterpret_cast<device const vec<T, 4>*>(values + first)) * by;
  } else {
    for (uint at = first; at < n; ++at) put[at] = float(values[at]) * by;
  }
  if (i == 0) *done = 1;
}
INSTANTIATE_KERNEL("packed_exchange_put_float", packed_exchange_put, float)
INSTANTIATE_KERNEL("packed_exchange_put_half", packed_exchange_put, half)

// Says that all is put. One thread. Inputs that say nothing are there so that it comes behind them.
kernel void packed_exchange_say(
    device const PackedWindows& windows [[buffer(0)]], device const float* loss [[buffer(1)]],
    device const uint* marched [[buffer(2)]], device const uint* kept [[buffer(3)]],
    device const uint* table [[buffer(4)]], device const uint* density [[buffer(5)]],
    device const uint* colour [[buffer(6)]], device uint* said [[buffer(7)]],
    constant uint& step [[buffer(8)]], constant float2& own [[buffer(9)]],
    uint i [[thread_position_in_grid]]) {
  device PackedSaid* const window = packed_said(windows, windows.rank);
  device atomic_float* const numbers = window->numbers[step % 2];
  atomic_store_explicit(numbers, *loss, memory_order_relaxed);
  for (uint part = 0; part < 2; ++part) {
    atomic_store_explicit(numbers + 1 + part, float(marched[part]), memory_order_relaxed);
    atomic_store_explicit(numbers + 3 + part, float(kept[part]), memory_order_relaxed);
    atomic_store_explicit(numbers + PACKED_MEANS + part, own[part], memory_order_relaxed);
  }
  // Values that earlier kernels have put come before it, too: they have ended.
  fence_all_devices();
  atomic_store_explicit(&window->step, step, memory_order_relaxed);
  *said = min(min(*table, *density), *colour);
}

// Waits until all have said a step, and adds up their numbers in the order of workers. A thread has one
// number. After so many polls of a worker it gives up for good, and the sums are NaN.
kernel void packed_exchange_wait(device const PackedWindows& windows [[buffer(0)]],
                                 device const uint* said [[buffer(1)]],
                                 device float* sums [[buffer(2)]],
                                 constant uint& step [[buffer(3)]],
                                 constant ulong& polls [[buffer(4)]],
                                 uint number [[thread_position_in_grid]]) {
  device atomic_uint* const gave_up = &packed_said(windows, windows.rank)->gave_up;
  bool lost = atomic_load_explicit(gave_up, memory_order_relaxed) != 0;
  for (long worker = 0; worker < windows.n_workers && !lost; ++worker) {
    device atomic_uint* const word = &packed_said(windows, worker)->step;
    ulong left = polls;
    while (atomic_load_explicit(word, memory_order_relaxed) < step) {
      fence_all_devices();
      if (left-- == 0) {
        lost = true;
        break;
      }
    }
  }
  // The next kernels read the values that others have put: not before this.
  fence_all_devices();
  if (lost) atomic_store_explicit(gave_up, 1u, memory_order_relaxed);
  float sum = lost ? NAN : 0.0f;
  for (long worker = 0; worker < windows.n_workers && !lost; ++worker) {
    sum += atomic_load_explicit(&packed_said(windows, worker)->numbers[step % 2][number],
                                memory_order_relaxed);
  }
  sums[number] = number < PACKED_MEANS ? sum / float(windows.n_workers) : sum;
}

// The mean of the values that workers have put from value `begin` on, once `waited` is there. A
// thread has four.
kernel void packed_exchange_mean(device const PackedWindows& windows [[buffer(0)]],
                                 device const float* waited [[buffer(1)]],
                                 device float* mean [[buffer(2)]],
                                 constant uint& step [[buffer(3)]],
                                 constant uint& begin [[buffer(4)]], constant uint& n [[buffer(5)]],
                                 uint i [[thread_position_in_grid]]) {
  const uint first = 4 * i;
  const float count = float(windows.n_workers);
  if (first + 4 <= n) {
    float4 sum = float4(0.0f);
    for (long worker = 0; worker < windows.n_workers; ++worker) {
      device const float* const from = packed_half(windows, worker, step) + begin;
      sum += *reinterpret_cast<device const float4*>(from + first);
    }
    *reinterpret_cast<device float4*>(mean + first) = sum / count;
  } else {
    for (uint at = first; at < n; ++at) {
      float sum = 0.0f;
      for (long worker = 0; worker < windows.n_workers; ++worker) {
        sum += packed_half(windows, worker, step)[begin + at];
      }
      mean[at] = sum / count;
    }
  }
}
