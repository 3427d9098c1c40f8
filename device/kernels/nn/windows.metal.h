// The points of a window that lie inside of an image, and the windows that a point lies in, along one
// dimension: found once, so that loops over them neither ask nor divide.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_METAL_H_
#define METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_METAL_H_

#include <metal_stdlib>

struct Taps {
  uint begin, end;
};
// The points within [0, size) of a window that begins at `first`.
inline Taps taps_within(int first, uint window, uint dilation, uint size) {
  Taps taps = {0, window};
  if (first < 0) taps.begin = (uint(-first) + dilation - 1) / dilation;
  if (first + int((window - 1) * dilation) >= int(size)) {
    taps.end = first >= int(size) ? 0 : (size - uint(first) + dilation - 1) / dilation;
  }
  return taps;
}

// The windows [first, last] that reach a point; `at` is where the point lies for window 0.
struct Reach {
  int first, last, at;
};
inline Reach reach_of(int point, int pad, uint window, uint dilation, uint stride, uint windows) {
  const uint at = uint(point + pad), span = (window - 1) * dilation;
  Reach reach;
  reach.first = at > span ? int((at - span + stride - 1) / stride) : 0;
  reach.last = metal::min(int(at / stride), int(windows) - 1);
  reach.at = int(at);
  return reach;
}
// The index of a point in its window; -1: one that dilation leaves out.
inline int tap_of(Reach reach, int window, uint stride, uint dilation) {
  const int offset = reach.at - window * int(stride);
  if (dilation == 1) return offset;
  return offset % int(dilation) == 0 ? offset / int(dilation) : -1;
}

#endif  // METAL_OPS_DEVICE_KERNELS_NN_WINDOWS_METAL_H_
