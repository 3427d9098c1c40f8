// The six hash-encode ops on the CPU: validate, allocate, share the work out on TensorFlow's
// intra-op pool.
//
// All six satisfy op determinism by construction: a point's result is made by one thread from its
// levels in order, a row's gradient by one thread from all points in order, however the work is
// shared out.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_float_types.h"
#include "kernels/hash_encode/hash_encode_checks.h"
#include "kernels/hash_encode/hash_encode_levels.h"
#include "kernels/hash_encode/hash_encode_simd.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace metal_ops {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::errors::InvalidArgument;
using In = HashEncodeInput;

// Points times levels that one thread does in roughly 50 us: below that, waking another one costs
// more than it saves.
constexpr int64_t kWorthAThread = 4096;
// Floats that are staged at a time, 64 MB; more points than that take several rounds over the
// table.
constexpr int64_t kStagedFloats = int64_t{16} << 20;
// Levels whose gradients of points are added up before they are staged. Fixed, so that sums are the
// same anywhere.
constexpr int64_t kLevelsPerSum = 2;

PartialShape ToPartialShape(const TensorShape& shape) {
  PartialShape partial;
  partial.known_rank = true;
  for (int i = 0; i < shape.dims(); ++i) partial.dims.push_back(shape.dim_size(i));
  return partial;
}

// What the six share. Tensors are reached through data() and never flat<T>(), which expects
// alignment.
class HashEncodeBase : public OpKernel {
 public:
  HashEncodeBase(OpKernelConstruction* context, std::vector<In> inputs)
      : OpKernel(context), spec_{context->def().op().c_str(), std::move(inputs)} {
    name_ = context->def().op();
    spec_.name = name_.c_str();
    std::string interpolation, grid_kind;
    OP_REQUIRES_OK(context, context->GetAttr("log2_per_level_scale", &attrs_.log2_per_level_scale));
    OP_REQUIRES_OK(context, context->GetAttr("resolution_coarsest", &attrs_.resolution_coarsest));
    OP_REQUIRES_OK(context, context->GetAttr("interpolation", &interpolation));
    OP_REQUIRES_OK(context, context->GetAttr("grid_kind", &grid_kind));
    attrs_.smoothstep = interpolation == "smoothstep";
    attrs_.dense = grid_kind == "dense";
    const std::string error = CheckHashEncodeAttrs(spec_.name, attrs_);
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));
  }

  void Compute(OpKernelContext* context) override {
    std::vector<PartialShape> shapes;
    for (int i = 0; i < context->num_inputs(); ++i) {
      shapes.push_back(ToPartialShape(context->input(i).shape()));
    }
    HashEncodeSizes sizes;
    std::string error = CheckHashEncodeShapes(spec_, shapes, &sizes);
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));

    // Copied: an int32 read must not depend on where the caller's memory lies.
    int32_t offsets[HASH_ENCODE_MAX_LEVELS + 1];
    std::memcpy(offsets, context->input(context->num_inputs() - 1).data(),
                (sizes.n_levels + 1) * sizeof(int32_t));
    error = CheckHashEncodeOffsets(spec_.name, attrs_, offsets, sizes.n_levels, sizes.n_rows);
    OP_REQUIRES(context, error.empty(), InvalidArgument(error));

    HashEncodeLevel levels[HASH_ENCODE_MAX_LEVELS];
    HashEncodeLevels(static_cast<int>(sizes.n_dims), static_cast<int>(sizes.n_levels),
                     attrs_.log2_per_level_scale, attrs_.resolution_coarsest, attrs_.dense, offsets,
                     levels);

    HashEncodeCall call = {};
    call.n_points = sizes.n_points;
    call.n_dims = sizes.n_dims;
    call.n_features = sizes.n_features;
    call.n_levels = sizes.n_levels;
    call.smoothstep = attrs_.smoothstep;
    call.levels = levels;
    for (int i = 0; i < context->num_inputs(); ++i) {
      const void* data = context->input(i).data();
      switch (spec_.inputs[i]) {
        case In::kTangents:
          call.tangents = static_cast<const float*>(data);
          break;
        case In::kIncoming:
          call.incoming = data;
          break;
        case In::kPoints:
          call.points = static_cast<const float*>(data);
          break;
        case In::kTable:
          call.table = data;
          call.type = ToFloatType(context->input(i).dtype());
          break;
        case In::kOffsets:
          break;
      }
    }
    Run(context, call, sizes.n_rows);
  }

 protected:
  virtual void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) = 0;

  static int64_t WorthThreads(OpKernelContext* context, int64_t work) {
    return std::min<int64_t>(NumThreads(context), 1 + work / kWorthAThread);
  }

  // A staging buffer, or null and a failed context.
  static float* Allocate(OpKernelContext* context, int64_t floats, Tensor* buffer) {
    const auto status =
        context->allocate_temp(tensorflow::DT_FLOAT, TensorShape({floats + 1}), buffer);
    if (!status.ok()) {
      context->CtxFailure(status);
      return nullptr;
    }
    return static_cast<float*>(buffer->data());
  }

  // Calls `work` with pieces of `range` on as many threads as given.
  static void ForPoints(OpKernelContext* context, PointRange range, int64_t threads,
                        const std::function<void(PointRange)>& work) {
    const int64_t pieces = threads == 1 ? 1 : 4 * threads;
    const int64_t step = std::max<int64_t>(1, (range.size() + pieces - 1) / pieces);
    RunTasks(context, (range.size() + step - 1) / step, threads, [&](int64_t i, int64_t) {
      const int64_t begin = range.begin + i * step;
      work({begin, std::min(range.end, begin + step)});
    });
  }

  // Calls `work(item, piece of range)` for n_items items that cost about the same, levels mostly:
  // the last first, as the finest is the biggest. A thread keeps to an item, unless there are too
  // few of them.
  static void ForItems(OpKernelContext* context, int64_t n_items, PointRange range, int64_t threads,
                       const std::function<void(int64_t, PointRange)>& work) {
    int64_t pieces = 1;
    if (n_items % threads != 0 && n_items < 4 * threads) {
      pieces = (2 * threads + n_items - 1) / n_items;
    }
    const int64_t step = std::max<int64_t>(1, (range.size() + pieces - 1) / pieces);
    pieces = (range.size() + step - 1) / step;
    RunTasks(context, n_items * pieces, threads, [&](int64_t i, int64_t) {
      const int64_t begin = range.begin + i % pieces * step;
      work(n_items - 1 - i / pieces, {begin, std::min(range.end, begin + step)});
    });
  }

  // Calls `work` with rounds of points that take no more than kStagedFloats.
  static void ForRounds(const HashEncodeCall& call, int64_t floats_per_point,
                        const std::function<void(PointRange)>& work) {
    const int64_t step = RoundSize(call, floats_per_point);
    for (int64_t begin = 0; begin < call.n_points; begin += step) {
      work({begin, std::min(call.n_points, begin + step)});
    }
  }

  static int64_t RoundSize(const HashEncodeCall& call, int64_t floats_per_point) {
    return std::min(call.n_points, kStagedFloats / floats_per_point);
  }

 private:
  std::string name_;
  HashEncodeOpSpec spec_;
  HashEncodeAttrs attrs_;
};

// HashEncode, HashEncodeJvp.
class EncodeOp : public HashEncodeBase {
 public:
  using HashEncodeBase::HashEncodeBase;

 protected:
  void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) override {
    Tensor* outputs = nullptr;
    const int64_t width = call.n_levels * call.n_features;
    const TensorShape shape({call.n_points, width});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &outputs));
    Tensor buffer;
    float* const features = Allocate(context, RoundSize(call, width) * width, &buffer);
    if (features == nullptr) return;

    const int64_t threads = WorthThreads(context, call.n_points * call.n_levels);
    ForRounds(call, width, [&](PointRange round) {
      const Staged staged{features, round};
      ForItems(context, call.n_levels, round, threads, [&](int64_t l, PointRange range) {
        EncodeLevel(call, l, range, staged.At(call, l, range.begin));
      });
      ForPoints(context, round, threads,
                [&](PointRange range) { StagedToOutputs(call, staged, range, outputs->data()); });
    });
  }
};

// HashEncodePointGrad, HashEncodeJvpPointGrad.
class PointGradOp : public HashEncodeBase {
 public:
  using HashEncodeBase::HashEncodeBase;

 protected:
  void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) override {
    Tensor* outputs = nullptr;
    const TensorShape shape({call.n_points, call.n_dims});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &outputs));
    float* const gradients = static_cast<float*>(outputs->data());

    const int64_t n_sums = (call.n_levels + kLevelsPerSum - 1) / kLevelsPerSum;
    const int64_t width = call.n_levels * call.n_features;
    const int64_t floats_per_point = width + n_sums * call.n_dims;
    const int64_t round_size = RoundSize(call, floats_per_point);
    Tensor buffer;
    float* const incoming = Allocate(context, round_size * floats_per_point, &buffer);
    if (incoming == nullptr) return;
    float* const sums = incoming + round_size * width;  // [n_sums, round, n_dims]

    const int64_t threads = WorthThreads(context, call.n_points * call.n_levels);
    ForRounds(call, floats_per_point, [&](PointRange round) {
      const Staged staged{incoming, round};
      const auto sums_at = [&](int64_t s, int64_t point) {
        return sums + (s * round.size() + point - round.begin) * call.n_dims;
      };
      ForPoints(context, round, threads,
                [&](PointRange range) { IncomingToStaged(call, range, staged); });
      ForItems(context, n_sums, round, threads, [&](int64_t s, PointRange range) {
        const int64_t begin = s * kLevelsPerSum;
        const int64_t end = std::min(call.n_levels, begin + kLevelsPerSum);
        for (int64_t l = begin; l < end; ++l) {
          SumPointGradients(call, l, range, staged.At(call, l, range.begin), l == begin,
                            sums_at(s, range.begin));
        }
      });
      ForPoints(context, round, threads, [&](PointRange range) {
        float* const to = gradients + range.begin * call.n_dims;
        const int64_t n = range.size() * call.n_dims;
        std::memcpy(to, sums_at(0, range.begin), n * sizeof(float));
        for (int64_t s = 1; s < n_sums; ++s) {
          const float* const from = sums_at(s, range.begin);
          for (int64_t i = 0; i < n; ++i) to[i] += from[i];
        }
      });
    });
  }
};

// HashEncodeGrad, HashEncodeJvpGrad.
class TableGradOp : public HashEncodeBase {
 public:
  using HashEncodeBase::HashEncodeBase;

 protected:
  // A level or, where there are more threads than levels, a part of its rows.
  struct Task {
    int64_t level;
    uint32_t begin, end;
    int64_t sums;  // where its float32 sums start, if they have a place of their own
    uint32_t size() const { return end - begin; }
  };

  void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) override {
    Tensor* gradients = nullptr;
    const TensorShape shape({n_rows, call.n_features});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &gradients));
    char* const out = static_cast<char*>(gradients->data());
    const int64_t row_bytes = call.n_features * BytesOf(call.type);

    // Rows that belong to no level.
    const HashEncodeLevel& last = call.levels[call.n_levels - 1];
    const int64_t used_end = int64_t{last.offset} + last.size;
    std::memset(out, 0, call.levels[0].offset * row_bytes);
    std::memset(out + used_end * row_bytes, 0, (n_rows - used_end) * row_bytes);

    const int64_t used_rows = used_end - call.levels[0].offset;
    const int64_t threads = WorthThreads(context, call.n_points * call.n_levels + used_rows / 8);
    const std::vector<Task> tasks = Tasks(call, threads);
    const bool whole_levels = static_cast<int64_t>(tasks.size()) == call.n_levels;

    // Whole float32 levels are summed in place. All else is summed in a float32 buffer a thread, or
    // a task if points come in several rounds.
    const int64_t width = call.n_levels * call.n_features;
    const int64_t round_size = RoundSize(call, width);
    const bool in_place = call.type == FloatType::kFloat && whole_levels;
    const bool one_round = round_size == call.n_points;
    const int64_t thread_sums = (tasks[0].size() + kDumpRows) * call.n_features;
    int64_t sums_floats = 0;
    if (!in_place) {
      sums_floats = one_round
                        ? threads * thread_sums
                        : tasks.back().sums + (tasks.back().size() + kDumpRows) * call.n_features;
    }
    Tensor buffer;
    float* const incoming = Allocate(context, round_size * width + sums_floats, &buffer);
    if (incoming == nullptr) return;
    float* const all_sums = incoming + round_size * width;

    const auto sum = [&](PointRange round) {
      const Staged staged{incoming, round};
      ForPoints(context, round, threads,
                [&](PointRange range) { IncomingToStaged(call, range, staged); });
      RunTasks(context, tasks.size(), threads, [&](int64_t i, int64_t thread) {
        const Task& task = tasks[i];
        const int64_t n = int64_t{task.size()} * call.n_features;
        char* const to = out + (int64_t{call.levels[task.level].offset} + task.begin) * row_bytes;
        float* const sums = in_place ? reinterpret_cast<float*>(to)
                                     : all_sums + (one_round ? thread * thread_sums : task.sums);
        if (round.begin == 0) {
          std::memset(sums, 0, (in_place ? n : n + kDumpRows * call.n_features) * sizeof(float));
        }
        SumTableGradients(call, task.level, round, staged.At(call, task.level, round.begin),
                          task.begin, task.end, sums);
        if (in_place || round.end != call.n_points) return;
        if (call.type == FloatType::kFloat) {
          std::memcpy(to, sums, n * sizeof(float));
        } else {
          NarrowFloats(call.type, sums, n, to);
        }
      });
    };
    if (call.n_points == 0) {
      sum({0, 0});
    } else {
      ForRounds(call, width, sum);
    }
  }

 private:
  // Biggest first, so that none is left alone at the end. Every part of a level reads all points,
  // so parts are as few as keep the threads busy.
  static std::vector<Task> Tasks(const HashEncodeCall& call, int64_t threads) {
    const int64_t parts = (threads + call.n_levels - 1) / call.n_levels;
    std::vector<Task> tasks;
    for (int64_t l = 0; l < call.n_levels; ++l) {
      const uint32_t size = call.levels[l].size;
      const uint32_t step = static_cast<uint32_t>((size + parts - 1) / parts);
      for (uint32_t begin = 0; begin < size; begin += step) {
        tasks.push_back({l, begin, std::min(size, begin + step), 0});
      }
    }
    std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
      return std::tuple(b.size(), a.level, a.begin) < std::tuple(a.size(), b.level, b.begin);
    });
    int64_t sums = 0;
    for (Task& task : tasks) {
      task.sums = sums;
      sums += (task.size() + kDumpRows) * call.n_features;
    }
    return tasks;
  }
};

// One kernel class an op: its inputs are all that differs.
#define HASH_ENCODE_KERNEL(op, base, ...)                                                \
  class op##Kernel : public base {                                                       \
   public:                                                                               \
    explicit op##Kernel(OpKernelConstruction* context) : base(context, {__VA_ARGS__}) {} \
  };                                                                                     \
  REGISTER_KERNEL_BUILDER(Name(#op).Device(tensorflow::DEVICE_CPU), op##Kernel)

HASH_ENCODE_KERNEL(HashEncode, EncodeOp, In::kPoints, In::kTable, In::kOffsets);
HASH_ENCODE_KERNEL(HashEncodeJvp, EncodeOp, In::kTangents, In::kPoints, In::kTable, In::kOffsets);
HASH_ENCODE_KERNEL(HashEncodeGrad, TableGradOp, In::kIncoming, In::kPoints, In::kTable,
                   In::kOffsets);
HASH_ENCODE_KERNEL(HashEncodeJvpGrad, TableGradOp, In::kTangents, In::kIncoming, In::kPoints,
                   In::kTable, In::kOffsets);
HASH_ENCODE_KERNEL(HashEncodePointGrad, PointGradOp, In::kIncoming, In::kPoints, In::kTable,
                   In::kOffsets);
HASH_ENCODE_KERNEL(HashEncodeJvpPointGrad, PointGradOp, In::kTangents, In::kIncoming, In::kPoints,
                   In::kTable, In::kOffsets);
#undef HASH_ENCODE_KERNEL

}  // namespace
}  // namespace metal_ops
