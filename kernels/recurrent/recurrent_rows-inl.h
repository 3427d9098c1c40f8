// Shared by the CPU's kernels of RecurrentSequence: sequences handed out to threads, a thread's
// memory, masks. Compiled once per instruction set.

// Toggled by foreach_target: once for each target.
#if defined(METAL_OPS_KERNELS_RECURRENT_RECURRENT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef METAL_OPS_KERNELS_RECURRENT_RECURRENT_ROWS_INL_H_
#undef METAL_OPS_KERNELS_RECURRENT_RECURRENT_ROWS_INL_H_
#else
#define METAL_OPS_KERNELS_RECURRENT_RECURRENT_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/recurrent/recurrent_call.h"
#include "kernels/recurrent/recurrent_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace metal_ops {
namespace HWY_NAMESPACE {

inline void Copy(const float* from, int64_t n, float* to) {
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

class RecurrentRows {
 protected:
  // A thread's floats, taken piece by piece.
  struct Room {
    float* next;
    float* Take(int64_t n) {
      float* const taken = next;
      next += (n + 15) / 16 * 16;
      return taken;
    }
  };

  explicit RecurrentRows(CpuCall& call)
      : call_(call),
        s_(call),
        mask_(s_.use_mask ? call.in<bool>(call.Index("mask")) : nullptr),
        epsilon_(call.Float("epsilon")),
        zeros_(static_cast<size_t>(s_.width)) {}

  // An input in float32; null if there is no memory for it, which Pack sees.
  const float* All(int input) {
    const int64_t n = call_.inputs[input].n_elements;
    if (call_.inputs[input].type == DType::kFloat) return call_.in<float>(input);
    auto* const wide = static_cast<float*>(call_.Scratch(n * 4));
    return wide == nullptr ? nullptr : call_.Read(input, 0, n, wide);
  }

  // Whether there was memory for them.
  bool ReadNorms() {
    if (s_.norms_products) gamma_ = All(call_.Index("recurrent_gamma"));
    if (s_.norms_cells) {
      cell_gamma_ = All(call_.Index("cell_gamma"));
      cell_beta_ = All(call_.Index("cell_beta"));
    }
    return s_.norms_products == (gamma_ != nullptr) &&
           s_.norms_cells == (cell_gamma_ != nullptr && cell_beta_ != nullptr);
  }

  bool Pack(const float* from, int64_t row, int64_t column_step, int64_t depth, int64_t columns,
            Panels* to) {
    to->depth = depth;
    to->columns = columns;
    to->data = static_cast<float*>(call_.Scratch(std::max<int64_t>(to->size(), 1) * 4));
    if (from == nullptr || to->data == nullptr) return false;
    const int64_t wide = PanelColumns();
    call_.ParallelFor(RoundToPanel(columns) / wide, depth * wide, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) PackPanel(from, row, column_step, *to, j);
    });
    return true;
  }

  // Calls work(room, begin, rows) for all sequences: as many at a time as tiles of the product have
  // rows, a few times that, and the same number of times for each thread.
  template <typename Work>
  void ForRows(const Work& work) {
    if (s_.batch == 0) return;
    const double cycles = static_cast<double>(s_.batch) * static_cast<double>(s_.steps) *
                          static_cast<double>(s_.width) *
                          (static_cast<double>(s_.outputs) / 16 + 8);
    const int64_t worth = std::max<int64_t>(1, static_cast<int64_t>(std::min(cycles / 50000, 1e6)));
    const int64_t threads =
        std::min({call_.n_threads(), worth, (s_.batch + kLeastRows - 1) / kLeastRows});
    const int64_t turns = (s_.batch + threads * kMostRows - 1) / (threads * kMostRows);
    const int64_t rows = (s_.batch + threads * turns - 1) / (threads * turns);
    const int64_t n_tasks = (s_.batch + rows - 1) / rows;
    const int64_t size =
        rows * (2 * RoundToPanel(s_.width) + 4 * RoundToPanel(std::max(s_.units, s_.outputs))) +
        2 * s_.width + 5 * std::max(s_.units, s_.outputs) + 16 * 16;
    auto* const memory = static_cast<float*>(call_.Scratch(threads * size * 4));
    if (memory == nullptr) return;
    call_.RunTasks(n_tasks, threads, [&](int64_t task, int64_t thread) {
      Room room = {memory + thread * size};
      work(room, task * rows, std::min(rows, s_.batch - task * rows));
    });
  }

  bool Seen(int64_t row, int64_t step) const {
    return mask_ == nullptr || mask_[row * s_.steps + step];
  }
  bool AnySeen(int64_t begin, int64_t rows, int64_t step) const {
    for (int64_t r = 0; r < rows; ++r) {
      if (Seen(begin + r, step)) return true;
    }
    return false;
  }

  // Writes n floats to an output, rounded to its type.
  void Put(int output, int64_t begin, int64_t n, const float* from) const {
    const MutableFloatArray to = call_.float_out(output);
    if (to.type == FloatType::kFloat) {
      Copy(from, n, static_cast<float*>(to.data) + begin);
    } else {
      to.Store(begin, n, from);
    }
  }

  CpuCall& call_;
  const RecurrentSizes s_;
  const bool* const mask_;
  const float epsilon_;  // of norms
  const std::vector<float> zeros_;
  const float *gamma_ = nullptr, *cell_gamma_ = nullptr, *cell_beta_ = nullptr;

 private:
  static constexpr int64_t kLeastRows = 4, kMostRows = 36;
};

}  // namespace HWY_NAMESPACE
}  // namespace metal_ops
HWY_AFTER_NAMESPACE();

#endif  // METAL_OPS_KERNELS_RECURRENT_RECURRENT_ROWS_INL_H_
