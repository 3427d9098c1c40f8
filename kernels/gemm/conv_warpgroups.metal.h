// Convolutions and their gradients as implicit products by four simdgroups together (warpgroup_tiles.metal.h): the
// elements of a window are found while they are copied into threadgroup memory, so that no tensor is rearranged, and a
// stride's zeros are never there.

#ifndef METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_METAL_H_
#define METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_METAL_H_

#include "kernels/gemm/conv_warpgroups_params.h"
#include "kernels/gemm/gemm_warpgroups.metal.h"
#include "kernels/msl/wide_access.h"

using namespace metal;

// A thread's 8 terms of a step: channels of a point of the filter, then those of the next point.
struct ConvTerms {
  int c, x, y;

  ROWS_INLINE ConvTerms(int first, int channels, int across) {
    const int point = first / channels;
    c = first - point * channels;
    y = point / across;
    x = point - y * across;
  }
  ROWS_INLINE void next(int channels, int across) thread {
    c += kWarpgroupDepth;
    while (c >= channels) {
      c -= channels;
      if (++x == across) x = 0, ++y;
    }
  }
};

// The points of a filter of which a product consists, and how far their windows lie from each other.
struct ConvPoints {
  int down, across;    // so many
  int step_y, step_x;  // from one to the next, in the image
};

// Windows of kRows points as lines of 64 terms.
template <typename T, int kRows, int kThreads, typename Places>
struct ConvWindows {
  static constexpr constant int kStep = kThreads / 8, kMine = kRows / kStep;
  static_assert(kRows % kStep == 0 && kStep % 8 == 0, "each thread has as many");

  device const T* at;
  int base[kMine], window[kMine];  // of the thread's lines; a window's top in the upper half
  int place;

  // Windows begin at y * stride - top, x * stride - left.
  ROWS_INLINE ConvWindows(device const T* images, constant ConvGroupsParams& p, uint first,
                          int2 stride, int2 top_left, uint thread_)
      : at(images) {
    const int line = int(thread_) / 8;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const uint row = first + uint(line + i * kStep);
      const uint points = p.out_h * p.out_w, image = row / points, point = row - image * points;
      const uint y = point / p.out_w, x = point - y * p.out_w;
      const int top = int(y) * stride.y - top_left.y, left = int(x) * stride.x - top_left.x;
      const bool there = row < p.points;
      base[i] = there ? ((int(image * p.in_h) + top) * int(p.in_w) + left) * int(p.channels) : 0;
      // No point of the filter reaches the image from so far above it.
      window[i] = int(uint(there ? top : -0x4000) << 16 | (uint(left) & 0xffff));
    }
    place = Places::place(line, int(thread_) % 8 * 8);
  }
  ROWS_INLINE void next(threadgroup T* to, ConvTerms terms, ConvPoints points,
                        constant ConvGroupsParams& p) thread {
    const int down = terms.y * points.step_y, across = terms.x * points.step_x;
    const int further = (down * int(p.in_w) + across) * int(p.channels) + terms.c;
    const bool there = terms.y < points.down;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int y = (window[i] >> 16) + down, x = int(short(window[i] & 0xffff)) + across;
      const bool inside = there && uint(y) < p.in_h && uint(x) < p.in_w;
      gemm_copy_16(to + place + i * kStep * Places::kLine,
                   at + long(inside ? base[i] + further : 0), inside);
    }
  }
};

// A matrix's rows as lines, 64 at a time: kColumns of its columns.
template <typename T, int kColumns, int kThreads, typename Places>
struct ConvRows {
  static constexpr constant int kOfLine = kColumns / 8, kStep = kThreads / kOfLine,
                                kMine = kWarpgroupDepth / kStep;
  static_assert(kThreads % kOfLine == 0 && kMine * kStep == kWarpgroupDepth && kStep % 8 == 0,
                "each thread has as many");

  device const T* at;
  int from, left, place;  // the thread's first element, and rows from it on

  ROWS_INLINE ConvRows(device const T* matrix, int rows, int first, int columns, uint thread_)
      : at(matrix) {
    const int line = int(thread_) / kOfLine, along = int(thread_) % kOfLine * 8;
    from = line * columns + first + along;
    left = first + along < columns ? rows - line : 0;
    place = Places::place(line, along);
  }
  ROWS_INLINE void next(threadgroup T* to, int columns) thread {
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const bool inside = i * kStep < left;
      gemm_copy_16(to + place + i * kStep * Places::kLine,
                   at + long(inside ? from + i * kStep * columns : 0), inside);
    }
    from += kWarpgroupDepth * columns;
    left -= kWarpgroupDepth;
  }
};

// A filter [down, across, columns, channels] as lines of 64 terms, kColumns columns of it.
template <typename T, int kColumns, int kThreads, typename Places>
struct ConvFilterLines {
  static constexpr constant int kStep = kThreads / 8, kMine = kColumns / kStep;
  static_assert(kColumns % kStep == 0 && kStep % 8 == 0, "each thread has as many");

  device const T* at;
  int column, columns, place;

  ROWS_INLINE ConvFilterLines(device const T* filter, int first, int all, uint thread_)
      : at(filter), columns(all) {
    column = first + int(thread_) / 8;
    place = Places::place(int(thread_) / 8, int(thread_) % 8 * 8);
  }
  // `point`: of the filter.
  ROWS_INLINE void next(threadgroup T* to, int point, int c, bool there, int channels) thread {
    const int first = (point * columns + column) * channels + c;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const bool inside = there && column + i * kStep < columns;
      gemm_copy_16(to + place + i * kStep * Places::kLine,
                   at + long(inside ? first + i * kStep * channels : 0), inside);
    }
  }
};

// 64 points of images as lines of kRows elements, each a point of the filter and a channel.
template <typename T, int kRows, int kThreads, typename Places>
struct ConvLines {
  static constexpr constant int kOfLine = kRows / 8, kStep = kThreads / kOfLine,
                                kMine = kWarpgroupDepth / kStep;
  static_assert(kThreads % kOfLine == 0 && kMine * kStep == kWarpgroupDepth && kStep % 8 == 0,
                "each thread has as many");

  device const T* at;
  uint base[kMine];   // of the thread's lines, whose point of the image is
  int window[kMine];  // its line in the upper half, and its column
  int end_y, end_x, place;
  int left;  // points from the thread's first line on
  // 64 points on, in the image and in memory; where that is beyond a line's or an image's end, so much less and more.
  int step_y, step_x;
  uint step, next_line, next_image;

  ROWS_INLINE ConvLines(device const T* images, constant ConvGroupsParams& p, uint first_point,
                        int count, uint first_row, uint thread_)
      : at(images) {
    const int line = int(thread_) / kOfLine, along = int(thread_) % kOfLine * 8;
    const uint row = first_row + uint(along), of_filter = row / p.channels;
    const uint down = of_filter / p.filter_w;
    const int dy = int(down * p.dilation_h) - p.pad_top;
    const int dx = int((of_filter - down * p.filter_w) * p.dilation_w) - p.pad_left;
    const uint points = p.out_h * p.out_w;
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const uint point = first_point + uint(line + i * kStep), image = point / points;
      const uint in_image = point - image * points, of_line = in_image / p.out_w;
      const int y = int(of_line * p.stride_h) + dy;
      const int x = int((in_image - of_line * p.out_w) * p.stride_w) + dx;
      base[i] = ((image * p.in_h + uint(y)) * p.in_w + uint(x)) * p.channels + row -
                of_filter * p.channels;
      window[i] = int(uint(y) << 16 | (uint(x) & 0xffff));
    }
    end_y = dy + int(p.out_h * p.stride_h);
    end_x = dx + int(p.out_w * p.stride_w);
    left = down < p.filter_h ? count - line : 0;
    const uint images_on = kWarpgroupDepth / points, rest = kWarpgroupDepth - images_on * points;
    const uint lines_on = rest / p.out_w;
    step_y = int(lines_on * p.stride_h);
    step_x = int((rest - lines_on * p.out_w) * p.stride_w);
    step = ((images_on * p.in_h + uint(step_y)) * p.in_w + uint(step_x)) * p.channels;
    next_line = (p.stride_h * p.in_w - p.out_w * p.stride_w) * p.channels;
    next_image = (p.in_h - p.out_h * p.stride_h) * p.in_w * p.channels;
    place = Places::place(line, along);
  }
  ROWS_INLINE void next(threadgroup T* to, constant ConvGroupsParams& p) thread {
    GEMM_UNROLL
    for (int i = 0; i < kMine; ++i) {
      int y = window[i] >> 16, x = int(short(window[i] & 0xffff));
      const bool inside = i * kStep < left && uint(y) < p.in_h && uint(x) < p.in_w;
      gemm_copy_16(to + place + i * kStep * Places::kLine, at + long(inside ? base[i] : 0), inside);
      y += step_y;
      x += step_x;
      uint further = step;
      if (x >= end_x) {
        x -= int(p.out_w * p.stride_w);
        y += int(p.stride_h);
        further += next_line;
      }
      if (y >= end_y) {
        y -= int(p.out_h * p.stride_h);
        further += next_image;
      }
      base[i] += further;
      window[i] = int(uint(y) << 16 | (uint(x) & 0xffff));
    }
    left -= kWarpgroupDepth;
  }
};

// Where a row of the product is written.
struct ConvRowsInOrder {
  long count;
  int columns;
  ROWS_INLINE long operator()(long row) const { return row < count ? row * long(columns) : -1; }
};
// The phase's points of an image.
struct ConvRowsOfPhase {
  constant ConvGroupsParams& p;
  uint down, across;
  ROWS_INLINE long operator()(long row) const {
    const uint points = p.out_h * p.out_w, image = uint(row) / points;
    const uint point = uint(row) - image * points, line = point / p.out_w;
    const uint y = line * p.stride_h + down, x = (point - line * p.out_w) * p.stride_w + across;
    if (row >= long(p.points) || y >= p.to_h || x >= p.to_w) return -1;
    return ((long(image) * long(p.to_h) + long(y)) * long(p.to_w) + long(x)) * long(p.columns);
  }
};

template <typename T, int kRows, int kColumns, int kStages, int kBehind>
struct ConvWarpgroups {
  static constexpr constant int kThreads = 2 * kRows, kTiles = kColumns / 8;
  static constexpr constant int kSpaceLine = kColumns + 4, kSpace = 16 * kSpaceLine;
  using Group = GemmWarpgroups<T, kRows, kColumns, kStages, kBehind>;
  using Sums16 = typename Rows<T>::Sums16;

  // The simdgroup's 16 rows through threadgroup memory, 8 neighbours a lane.
  template <typename Out, typename Places, typename Epilogue>
  ROWS_INLINE static void store(thread Sums16 (&sums)[kTiles], threadgroup T* memory,
                                device Out* out, Places places, Epilogue epilogue, long row,
                                uint column, uint columns, uint simdgroup, uint lane) {
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    threadgroup float* const space = (threadgroup float*)memory + int(simdgroup) * kSpace;
    Tiles<T>::put(sums, space, kSpaceLine, lane);
    metal::simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    const bool wide = is_wide((device const Out*)out);
#pragma clang loop unroll(disable)
    for (int i = int(lane); i < 2 * kColumns; i += 32) {
      const int r = i / kTiles, c = i % kTiles * 8;
      const uint first = column + uint(c);
      const long to = places(row + r);
      if (to < 0 || first >= columns) continue;
      threadgroup const float* const from = space + r * kSpaceLine + c;
      const long at = to + long(first);
      float y[8];
      GEMM_UNROLL
      for (int j = 0; j < 8; ++j) y[j] = from[j];
      EpilogueColumns<8> of_columns;
      epilogue.columns(first, of_columns);
      epilogue.row(y, of_columns, at);
      store_row<Out, 8>(y, wide, out + at);
    }
  }

  ROWS_INLINE static void clear(thread Sums16 (&sums)[kTiles]) {
    ROWS_UNROLL
    for (int j = 0; j < kTiles; ++j) Rows<T>::clear(sums[j]);
  }

  // Blocks beside each other follow each other: they read the same windows.
  ROWS_INLINE static uint2 place(uint group, uint columns) {
    const uint across = (columns + kColumns - 1) / kColumns, down = group / across;
    return uint2((group - down * across) * kColumns, down * kRows);
  }

  template <typename Epilogue>
  ROWS_INLINE static void forward(device const T* a, device const T* b, device T* out,
                                  constant ConvGroupsParams& p, Epilogue epilogue,
                                  threadgroup T* memory, uint3 group, uint thread_, uint simdgroup,
                                  uint lane) {
    using Product = WarpgroupProduct<T, kRows, kColumns, kWarpgroupDepth, true, false>;
    const uint2 at = place(group.x, p.columns);
    const int terms = int(p.filter_h * p.filter_w * p.channels);
    struct Copies {
      ConvWindows<T, kRows, kThreads, typename Product::A> of_a;
      ConvRows<T, kColumns, kThreads, typename Product::B> of_b;
      ConvTerms place;
      ConvPoints points;
      constant ConvGroupsParams& p;
      ROWS_INLINE void next(threadgroup T* a_to, threadgroup T* b_to) thread {
        of_a.next(a_to, place, points, p);
        of_b.next(b_to, int(p.columns));
        place.next(int(p.channels), points.across);
      }
    };
    Copies copies = {
        {a, p, at.y, int2(int(p.stride_w), int(p.stride_h)), int2(p.pad_left, p.pad_top), thread_},
        {b, terms, int(at.x), int(p.columns), thread_},
        ConvTerms(int(thread_) % 8 * 8, int(p.channels), int(p.filter_w)),
        {int(p.filter_h), int(p.filter_w), int(p.dilation_h), int(p.dilation_w)},
        p};
    Sums16 sums[kTiles];
    clear(sums);
    Group::template multiply<Product>(copies, (terms + kWarpgroupDepth - 1) / kWarpgroupDepth,
                                      memory, simdgroup, sums, lane);
    store(sums, memory, out, ConvRowsInOrder{long(p.points), int(p.columns)}, epilogue,
          long(at.y) + 16 * long(simdgroup), at.x, p.columns, simdgroup, lane);
  }

  // d_in: of the points of the phase group.z of the stride, each a sum over those points of the filter that meet it.
  ROWS_INLINE static void input(device const T* d_out, device const T* filter, device T* d_in,
                                constant ConvGroupsParams& p, threadgroup T* memory, uint3 group,
                                uint thread_, uint simdgroup, uint lane) {
    using Product = WarpgroupProduct<T, kRows, kColumns, kWarpgroupDepth, true, true>;
    const uint2 at = place(group.x, p.columns);
    const int stride_h = int(p.stride_h), stride_w = int(p.stride_w);
    const int down = int(group.z) / stride_w, across = int(group.z) % stride_w;
    const int first_y = (down + p.pad_top) % stride_h, first_x = (across + p.pad_left) % stride_w;
    const ConvPoints points = {(int(p.filter_h) - first_y + stride_h - 1) / stride_h,
                               (int(p.filter_w) - first_x + stride_w - 1) / stride_w, -1, -1};
    const int terms = points.down * points.across * int(p.channels);
    struct Copies {
      ConvWindows<T, kRows, kThreads, typename Product::A> of_a;
      ConvFilterLines<T, kColumns, kThreads, typename Product::B> of_b;
      ConvTerms place;
      ConvPoints points;
      int first_y, first_x;
      constant ConvGroupsParams& p;
      ROWS_INLINE void next(threadgroup T* a_to, threadgroup T* b_to) thread {
        of_a.next(a_to, place, points, p);
        const int point = (first_y + place.y * int(p.stride_h)) * int(p.filter_w) + first_x +
                          place.x * int(p.stride_w);
        of_b.next(b_to, point, place.c, place.y < points.down, int(p.channels));
        place.next(int(p.channels), points.across);
      }
    };
    Sums16 sums[kTiles];
    clear(sums);
    if (terms > 0) {
      Copies copies = {{d_out, p, at.y, int2(1, 1),
                        int2((first_x - across - p.pad_left) / stride_w,
                             (first_y - down - p.pad_top) / stride_h),
                        thread_},
                       {filter, int(at.x), int(p.columns), thread_},
                       ConvTerms(int(thread_) % 8 * 8, int(p.channels), points.across),
                       points,
                       first_y,
                       first_x,
                       p};
      Group::template multiply<Product>(copies, (terms + kWarpgroupDepth - 1) / kWarpgroupDepth,
                                        memory, simdgroup, sums, lane);
    }
    store(sums, memory, d_in, ConvRowsOfPhase{p, uint(down), uint(across)}, NoEpilogue(),
          long(at.y) + 16 * long(simdgroup), at.x, p.columns, simdgroup, lane);
  }

  // Part group.z of the filter's gradient: the sum over so many points.
  ROWS_INLINE static void filter(device const T* in, device const T* d_out, device float* parts,
                                 constant ConvGroupsParams& p, threadgroup T* memory, uint3 group,
                                 uint thread_, uint simdgroup, uint lane) {
    using Product = WarpgroupProduct<T, kRows, kColumns, kWarpgroupDepth, false, false>;
    const uint2 at = place(group.x, p.columns);
    const uint first = group.z * p.part, count = metal::min(p.part, p.points - first);
    struct Copies {
      ConvLines<T, kRows, kThreads, typename Product::A> of_a;
      ConvRows<T, kColumns, kThreads, typename Product::B> of_b;
      constant ConvGroupsParams& p;
      ROWS_INLINE void next(threadgroup T* a_to, threadgroup T* b_to) thread {
        of_a.next(a_to, p);
        of_b.next(b_to, int(p.columns));
      }
    };
    Copies copies = {
        {in, p, first, int(count), at.y, thread_},
        {d_out + long(first) * long(p.columns), int(count), int(at.x), int(p.columns), thread_},
        p};
    Sums16 sums[kTiles];
    clear(sums);
    Group::template multiply<Product>(copies, int((count + kWarpgroupDepth - 1) / kWarpgroupDepth),
                                      memory, simdgroup, sums, lane);
    const long rows = long(p.filter_h * p.filter_w) * long(p.channels);
    store(sums, memory, parts + long(group.z) * rows * long(p.columns),
          ConvRowsInOrder{rows, int(p.columns)}, NoEpilogue(), long(at.y) + 16 * long(simdgroup),
          at.x, p.columns, simdgroup, lane);
  }
};

template <typename T, int kRows, int kColumns, int kStages, int kBehind>
[[kernel, max_total_threads_per_threadgroup(2 * kRows)]] void conv_warpgroups(
    device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device T* out [[buffer(2)]],
    constant ConvGroupsParams& params [[buffer(3)]], device const T* gamma [[buffer(4)]],
    device const T* beta [[buffer(5)]], device const T* mean [[buffer(6)]],
    device const T* variance [[buffer(7)]], device const T* residual [[buffer(8)]],
    constant EpilogueParams& epilogue [[buffer(9)]], threadgroup T* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint thread_ [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const FusedEpilogue<T> fused = {gamma,    beta,     mean,
                                  variance, residual, {epilogue.epsilon, epilogue.leakyrelu_alpha}};
  ConvWarpgroups<T, kRows, kColumns, kStages, kBehind>::forward(a, b, out, params, fused, memory,
                                                                group, thread_, simdgroup, lane);
}

template <typename T, int kRows, int kColumns, int kStages, int kBehind>
[[kernel, max_total_threads_per_threadgroup(2 * kRows)]] void conv_warpgroups_input(
    device const T* d_out [[buffer(0)]], device const T* filter [[buffer(1)]],
    device T* d_in [[buffer(2)]], constant ConvGroupsParams& params [[buffer(3)]],
    threadgroup T* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  ConvWarpgroups<T, kRows, kColumns, kStages, kBehind>::input(d_out, filter, d_in, params, memory,
                                                              group, thread_, simdgroup, lane);
}

template <typename T, int kRows, int kColumns, int kStages, int kBehind>
[[kernel, max_total_threads_per_threadgroup(2 * kRows)]] void conv_warpgroups_filter(
    device const T* in [[buffer(0)]], device const T* d_out [[buffer(1)]],
    device float* parts [[buffer(2)]], constant ConvGroupsParams& params [[buffer(3)]],
    threadgroup T* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint thread_ [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  ConvWarpgroups<T, kRows, kColumns, kStages, kBehind>::filter(in, d_out, parts, params, memory,
                                                               group, thread_, simdgroup, lane);
}

// The filter's gradient of its parts, four elements a thread; there are a multiple of four.
template <typename T>
[[kernel]] void conv_warpgroups_join(device const float* parts [[buffer(0)]],
                                     device T* out [[buffer(1)]],
                                     constant uint& elements [[buffer(2)]],
                                     constant uint& n_parts [[buffer(3)]],
                                     uint i [[thread_position_in_grid]]) {
  device const float4* from = (device const float4*)parts + i;
  float4 sum = float4(0.0f);
  for (uint part = 0; part < n_parts; ++part, from += elements / 4) sum += *from;
  *(device metal::vec<T, 4>*)(out + 4 * long(i)) =
      metal::vec<T, 4>(T(sum.x), T(sum.y), T(sum.z), T(sum.w));
}

// Written once in a library that has these shaders.
#define CONV_WARPGROUPS_KERNELS_OF(kernel, T)                              \
  INSTANTIATE_KERNEL(#kernel "_even_" #T, kernel, T, CONV_EVEN_WARPGROUPS) \
  INSTANTIATE_KERNEL(#kernel "_tall_" #T, kernel, T, CONV_TALL_WARPGROUPS) \
  INSTANTIATE_KERNEL(#kernel "_small_" #T, kernel, T, CONV_SMALL_WARPGROUPS)
#define CONV_WARPGROUPS_KERNELS(kernel)    \
  CONV_WARPGROUPS_KERNELS_OF(kernel, half) \
  IF_BFLOAT(CONV_WARPGROUPS_KERNELS_OF(kernel, bfloat))

#endif  // METAL_OPS_KERNELS_GEMM_CONV_WARPGROUPS_METAL_H_
