// How the workers of a run add up gradients where each has a GPU and may read what lies on the others:
// each puts its own where all read them, and each adds up all of them in the order of workers, so that
// all have the same bits. Workers meet between the two, on the host
// (python/metal_ops/programs/windows.py): no kernel here waits. That memory is no buffer of this
// process, so it comes as addresses.

#include <metal_stdlib>

using namespace metal;

// Copies values to an address. A thread has four. `done` is there so that somebody can wait for it.
kernel void packed_exchange_put(device const float* values [[buffer(0)]],
                                device uint* done [[buffer(1)]], constant ulong& to [[buffer(2)]],
                                constant uint& n [[buffer(3)]],
                                uint i [[thread_position_in_grid]]) {
  device float* const put = reinterpret_cast<device float*>(to);
  const uint first = 4 * i;
  if (first + 4 <= n) {
    *reinterpret_cast<device float4*>(put + first) =
        *reinterpret_cast<device const float4*>(values + first);
  } else {
    for (uint at = first; at < n; ++at) put[at] = values[at];
  }
  if (i == 0) *done = 1;
}

// The mean of what workers have put at their addresses. A thread has four.
kernel void packed_exchange_mean(device float* mean [[buffer(0)]],
                                 constant ulong* from [[buffer(1)]],
                                 constant uint& n_workers [[buffer(2)]],
                                 constant uint& n [[buffer(3)]],
                                 uint i [[thread_position_in_grid]]) {
  const uint first = 4 * i;
  if (first + 4 <= n) {
    float4 sum = *reinterpret_cast<device const float4*>(from[0] + 4 * ulong(first));
    for (uint worker = 1; worker < n_workers; ++worker) {
      sum += *reinterpret_cast<device const float4*>(from[worker] + 4 * ulong(first));
    }
    *reinterpret_cast<device float4*>(mean + first) = sum / float(n_workers);
  } else {
    for (uint at = first; at < n; ++at) {
      float sum = 0.0f;
      for (uint worker = 0; worker < n_workers; ++worker) {
        sum += *reinterpret_cast<device const float*>(from[worker] + 4 * ulong(at));
      }
      mean[at] = sum / float(n_workers);
    }
  }
}

// What a step tells the other workers: its loss, and slots that were taken and would have been, of both
// kinds. Behind everything that was put. One thread.
kernel void packed_exchange_numbers(device const float* loss [[buffer(0)]],
                                    device const uint* marched [[buffer(1)]],
                                    device const uint* kept [[buffer(2)]],
                                    device const uint* table [[buffer(3)]],
                                    device const uint* networks [[buffer(4)]],
                                    device float* numbers [[buffer(5)]],
                                    uint i [[thread_position_in_grid]]) {
  numbers[0] = *loss;
  for (uint part = 0; part < 2; ++part) {
    numbers[1 + part] = float(marched[part]);
    numbers[3 + part] = float(kept[part]);
  }
  // They are inputs so that this kernel comes behind them.
  numbers[5] = float(min(*table, *networks));
}
