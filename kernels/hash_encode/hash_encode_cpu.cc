// The six hash-encode ops on the CPU: validate, allocate, share the work out on TensorFlow's
// intra-op pool.
//
// All six satisfy op determinism by construction: a point's result is made by one thread from its
// levels in order, a row's gradient by one thread from all points in order, however the work is
// shared out.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/hash_encode/hash_encode_checks.h"
#include "kernels/hash_encode/hash_encode_levels.h"
#include "kernels/hash_encode/hash_encode_parallel.h"
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

FeatureType ToFeatureType(tensorflow::DataType type) {
  if (type == tensorflow::DT_HALF) return FeatureType::kHalf;
  return type == tensorflow::DT_BFLOAT16 ? FeatureType::kBfloat16 : FeatureType::kFloat;
}

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
          call.type = ToFeatureType(context->input(i).dtype());
          break;
        case In::kOffsets:
          break;
      }
    }
    Run(context, call, sizes.n_rows);
  }

 protected:
  virtual void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) = 0;

  // Calls `work(begin, end)` on ranges of points, on as many threads as are worth it.
  static void ForPoints(OpKernelContext* context, const HashEncodeCall& call,
                        const std::function<void(int64_t, int64_t)>& work) {
    if (call.n_points == 0) return;
    const int64_t threads =
        std::min<int64_t>(NumThreads(context), 1 + call.n_points * call.n_levels / kWorthAThread);
    // Two ranges a thread even out a slower core; more would walk the table too often.
    const int64_t ranges = threads == 1 ? 1 : std::min<int64_t>(2 * threads, call.n_points);
    const int64_t step = (call.n_points + ranges - 1) / ranges;
    RunTasks(context, ranges, threads, [&](int64_t i, int64_t) {
      const int64_t begin = i * step;
      const int64_t end = std::min(call.n_points, begin + step);
      if (begin < end) work(begin, end);
    });
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
    const TensorShape shape({call.n_points, call.n_levels * call.n_features});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &outputs));
    ForPoints(context, call,
              [&](int64_t begin, int64_t end) { EncodePoints(call, begin, end, outputs->data()); });
  }
};

// HashEncodePointGrad, HashEncodeJvpPointGrad.
class PointGradOp : public HashEncodeBase {
 public:
  using HashEncodeBase::HashEncodeBase;

 protected:
  void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) override {
    Tensor* gradients = nullptr;
    const TensorShape shape({call.n_points, call.n_dims});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &gradients));
    ForPoints(context, call, [&](int64_t begin, int64_t end) {
      SumPointGradients(call, begin, end, static_cast<float*>(gradients->data()));
    });
  }
};

// HashEncodeGrad, HashEncodeJvpGrad.
class TableGradOp : public HashEncodeBase {
 public:
  using HashEncodeBase::HashEncodeBase;

 protected:
  void Run(OpKernelContext* context, const HashEncodeCall& call, int64_t n_rows) override {
    Tensor* gradients = nullptr;
    const TensorShape shape({n_rows, call.n_features});
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &gradients));
    if (n_rows == 0) return;
    char* const out = static_cast<char*>(gradients->data());
    const int64_t row_bytes = call.n_features * SizeOf(call.type);

    // Rows that belong to no level.
    const HashEncodeLevel& last = call.levels[call.n_levels - 1];
    const int64_t used_end = int64_t{last.offset} + last.size;
    std::memset(out, 0, call.levels[0].offset * row_bytes);
    std::memset(out + used_end * row_bytes, 0, (n_rows - used_end) * row_bytes);

    // A task is a level or, where there are more threads than levels, a range of its rows. Every
    // range reads all points, so ranges are as few as keep the threads busy.
    struct Task {
      int64_t level;
      uint32_t begin, end;
    };
    const int64_t used_rows = used_end - call.levels[0].offset;
    const int64_t threads = std::min<int64_t>(
        NumThreads(context), 1 + (call.n_points * call.n_levels + used_rows / 8) / kWorthAThread);
    const int64_t ranges = (threads + call.n_levels - 1) / call.n_levels;
    std::vector<Task> tasks;
    uint32_t most_rows = 0;
    for (int64_t l = 0; l < call.n_levels; ++l) {
      const uint32_t size = call.levels[l].size;
      const uint32_t step = static_cast<uint32_t>((size + ranges - 1) / ranges);
      for (uint32_t begin = 0; begin < size; begin += step) {
        tasks.push_back({l, begin, std::min(size, begin + step)});
        most_rows = std::max(most_rows, tasks.back().end - begin);
      }
    }
    // Biggest first, so that none is left alone at the end.
    std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
      return a.end - a.begin > b.end - b.begin;
    });

    // Whole float32 levels are summed in place; all else in a float32 buffer a thread.
    const bool in_place = call.type == FeatureType::kFloat && ranges == 1;
    const int64_t sums_size = in_place ? 0 : (most_rows + kDumpRows) * call.n_features;
    Tensor buffer;
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_FLOAT,
                                                   TensorShape({threads, sums_size}), &buffer));
    float* const buffers = static_cast<float*>(buffer.data());

    RunTasks(context, tasks.size(), threads, [&](int64_t i, int64_t thread) {
      const Task& task = tasks[i];
      const int64_t n = int64_t{task.end - task.begin} * call.n_features;
      char* const to = out + (int64_t{call.levels[task.level].offset} + task.begin) * row_bytes;
      float* const sums = in_place ? reinterpret_cast<float*>(to) : buffers + thread * sums_size;
      std::memset(sums, 0, (in_place ? n : n + kDumpRows * call.n_features) * sizeof(float));
      SumTableGradients(call, task.level, task.begin, task.end, sums);
      if (in_place) return;
      if (call.type == FeatureType::kFloat) {
        std::memcpy(to, sums, n * sizeof(float));
      } else {
        RoundFromFloat(call.type, sums, n, to);
      }
    });
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
