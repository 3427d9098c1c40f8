// The six hash-encode ops on the CPU: validate, allocate, share the work out on
// threads.
//
// All six satisfy op determinism by construction: a point's result is made by one thread from its
// levels in order, a row's gradient by one thread from all points in order, however the work is
// shared out.

#include <algorithm>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector>

#include "kernels/hash_encode/hash_encode_levels.h"
#include "kernels/hash_encode/hash_encode_simd.h"

namespace metal_ops {
namespace {

// Points times levels that one thread does in roughly 50 us: below that, waking another one costs
// more than it saves.
constexpr int64_t kWorthAThread = 4096;
// Floats that are staged at a time, 64 MB; more points than that take several rounds over the
// table.
constexpr int64_t kStagedFloats = int64_t{16} << 20;
// Levels whose gradients of points are added up before they are staged. Fixed, so that sums are the
// same anywhere.
constexpr int64_t kLevelsPerSum = 2;

// Shared by the kernels.
class Hash : public HashEncodeCall {
 public:
  explicit Hash(CpuCall& call) : call_(call) {
    n_points = call.Size("N");
    n_dims = call.Size("D");
    n_features = call.Size("F");
    n_levels = call.Size("L");
    smoothstep = call.Text("interpolation") == "smoothstep";
    HashEncodeLevels(call, own_levels_);
    levels = own_levels_;
    const auto data = [&](const char* input) -> const void* {
      const int i = call.Index(input);
      return i < 0 ? nullptr : call.inputs[i].data;
    };
    tangents = static_cast<const float*>(data("tangents"));
    d_outputs = data("incoming_gradients");
    points = static_cast<const float*>(data("inputs"));
    table = data("embeddings");
    type = ToFloatType(call.Type("T"));
  }
  Hash(const Hash&) = delete;  // `levels` are its own

  int64_t width() const { return n_levels * n_features; }

  int64_t WorthThreads(int64_t work) const {
    return std::min<int64_t>(call_.n_threads(), 1 + work / kWorthAThread);
  }

  // A staging buffer, or null and a failed call.
  float* Stage(int64_t floats) const {
    return static_cast<float*>(call_.Scratch(floats * sizeof(float)));
  }

  // Calls `work` with pieces of `range` on as many threads as given.
  void ForPoints(PointRange range, int64_t threads,
                 const std::function<void(PointRange)>& work) const {
    const int64_t pieces = threads == 1 ? 1 : 4 * threads;
    const int64_t step = std::max<int64_t>(1, (range.size() + pieces - 1) / pieces);
    call_.RunTasks((range.size() + step - 1) / step, threads, [&](int64_t i, int64_t) {
      const int64_t begin = range.begin + i * step;
      work({begin, std::min(range.end, begin + step)});
    });
  }

  // Calls `work(item, piece of range)` for n_items items that cost about the same, levels mostly:
  // the last first, as the finest is the biggest. A thread keeps to an item, unless there are too
  // few of them.
  void ForItems(int64_t n_items, PointRange range, int64_t threads,
                const std::function<void(int64_t, PointRange)>& work) const {
    int64_t pieces = 1;
    if (n_items % threads != 0 && n_items < 4 * threads) {
      pieces = (2 * threads + n_items - 1) / n_items;
    }
    const int64_t step = std::max<int64_t>(1, (range.size() + pieces - 1) / pieces);
    pieces = (range.size() + step - 1) / step;
    call_.RunTasks(n_items * pieces, threads, [&](int64_t i, int64_t) {
      const int64_t begin = range.begin + i % pieces * step;
      work(n_items - 1 - i / pieces, {begin, std::min(range.end, begin + step)});
    });
  }

  // Calls `work` with rounds of points that take no more than kStagedFloats.
  void ForRounds(int64_t floats_per_point, const std::function<void(PointRange)>& work) const {
    const int64_t step = RoundSize(floats_per_point);
    for (int64_t begin = 0; begin < n_points; begin += step) {
      work({begin, std::min(n_points, begin + step)});
    }
  }

  int64_t RoundSize(int64_t floats_per_point) const {
    return std::min(n_points, kStagedFloats / floats_per_point);
  }

 private:
  CpuCall& call_;
  HashEncodeLevel own_levels_[HASH_ENCODE_MAX_LEVELS];
};

// HashEncode, HashEncodeJvp.
void Encode(CpuCall& call) {
  const Hash hash(call);
  float* const features = hash.Stage(hash.RoundSize(hash.width()) * hash.width());
  if (features == nullptr) return;
  const int64_t threads = hash.WorthThreads(hash.n_points * hash.n_levels);
  hash.ForRounds(hash.width(), [&](PointRange round) {
    const Staged staged{features, round};
    hash.ForItems(hash.n_levels, round, threads, [&](int64_t l, PointRange range) {
      EncodeLevel(hash, l, range, staged.At(hash, l, range.begin));
    });
    hash.ForPoints(round, threads, [&](PointRange range) {
      StagedToOutputs(hash, staged, range, call.outputs[0].data);
    });
  });
}
CPU_KERNEL("HashEncode", Encode);
CPU_KERNEL("HashEncodeJvp", Encode);

// HashEncodePointGrad, HashEncodeJvpPointGrad.
void PointGradient(CpuCall& call) {
  const Hash hash(call);
  const int64_t n_sums = (hash.n_levels + kLevelsPerSum - 1) / kLevelsPerSum;
  const int64_t floats_per_point = hash.width() + n_sums * hash.n_dims;
  const int64_t round_size = hash.RoundSize(floats_per_point);
  float* const d_outputs = hash.Stage(round_size * floats_per_point);
  if (d_outputs == nullptr) return;
  float* const sums = d_outputs + round_size * hash.width();  // [n_sums, round, n_dims]

  const int64_t threads = hash.WorthThreads(hash.n_points * hash.n_levels);
  hash.ForRounds(floats_per_point, [&](PointRange round) {
    const Staged staged{d_outputs, round};
    const auto sums_at = [&](int64_t s, int64_t point) {
      return sums + (s * round.size() + point - round.begin) * hash.n_dims;
    };
    hash.ForPoints(round, threads,
                   [&](PointRange range) { IncomingToStaged(hash, range, staged); });
    hash.ForItems(n_sums, round, threads, [&](int64_t s, PointRange range) {
      const int64_t begin = s * kLevelsPerSum;
      const int64_t end = std::min(hash.n_levels, begin + kLevelsPerSum);
      for (int64_t l = begin; l < end; ++l) {
        SumPointGradients(hash, l, range, staged.At(hash, l, range.begin), l == begin,
                          sums_at(s, range.begin));
      }
    });
    hash.ForPoints(round, threads, [&](PointRange range) {
      float* const to = call.out<float>(0) + range.begin * hash.n_dims;
      const int64_t n = range.size() * hash.n_dims;
      std::memcpy(to, sums_at(0, range.begin), n * sizeof(float));
      for (int64_t s = 1; s < n_sums; ++s) {
        const float* const from = sums_at(s, range.begin);
        for (int64_t i = 0; i < n; ++i) to[i] += from[i];
      }
    });
  });
}
CPU_KERNEL("HashEncodePointGrad", PointGradient);
CPU_KERNEL("HashEncodeJvpPointGrad", PointGradient);

// A level or, where there are more threads than levels, a part of its rows.
struct Task {
  int64_t level;
  uint32_t begin, end;
  int64_t sums;  // where its float32 sums start, if they have a place of their own
  uint32_t size() const { return end - begin; }
};

// Biggest first, so that none is left alone at the end. Every part of a level reads all points, so
// parts are as few as keep the threads busy.
std::vector<Task> Tasks(const HashEncodeCall& call, int64_t threads) {
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

// HashEncodeGrad, HashEncodeJvpGrad.
void TableGradient(CpuCall& call) {
  const Hash hash(call);
  char* const out = call.out<char>(0);
  const int64_t row_bytes = hash.n_features * BytesOf(hash.type);

  // Rows that belong to no level.
  const HashEncodeLevel& last = hash.levels[hash.n_levels - 1];
  const int64_t used_end = int64_t{last.offset} + last.size;
  std::memset(out, 0, hash.levels[0].offset * row_bytes);
  std::memset(out + used_end * row_bytes, 0, (call.Size("rows") - used_end) * row_bytes);

  const int64_t used_rows = used_end - hash.levels[0].offset;
  const int64_t threads = hash.WorthThreads(hash.n_points * hash.n_levels + used_rows / 8);
  const std::vector<Task> tasks = Tasks(hash, threads);
  const bool whole_levels = static_cast<int64_t>(tasks.size()) == hash.n_levels;

  // Whole float32 levels are summed in place. All else is summed in a float32 buffer per thread, or
  // per task if points come in several rounds.
  const int64_t width = hash.width();
  const int64_t round_size = hash.RoundSize(width);
  const bool in_place = hash.type == FloatType::kFloat && whole_levels;
  const bool one_round = round_size == hash.n_points;
  const int64_t thread_sums = (tasks[0].size() + kDumpRows) * hash.n_features;
  int64_t sums_floats = 0;
  if (!in_place) {
    sums_floats = one_round
                      ? threads * thread_sums
                      : tasks.back().sums + (tasks.back().size() + kDumpRows) * hash.n_features;
  }
  float* const d_outputs = hash.Stage(round_size * width + sums_floats);
  if (d_outputs == nullptr) return;
  float* const all_sums = d_outputs + round_size * width;

  const auto sum = [&](PointRange round) {
    const Staged staged{d_outputs, round};
    hash.ForPoints(round, threads,
                   [&](PointRange range) { IncomingToStaged(hash, range, staged); });
    call.RunTasks(tasks.size(), threads, [&](int64_t i, int64_t thread) {
      const Task& task = tasks[i];
      const int64_t n = int64_t{task.size()} * hash.n_features;
      char* const to = out + (int64_t{hash.levels[task.level].offset} + task.begin) * row_bytes;
      float* const sums = in_place ? reinterpret_cast<float*>(to)
                                   : all_sums + (one_round ? thread * thread_sums : task.sums);
      if (round.begin == 0) {
        std::memset(sums, 0, (in_place ? n : n + kDumpRows * hash.n_features) * sizeof(float));
      }
      SumTableGradients(hash, task.level, round, staged.At(hash, task.level, round.begin),
                        task.begin, task.end, sums);
      if (in_place || round.end != hash.n_points) return;
      if (hash.type == FloatType::kFloat) {
        std::memcpy(to, sums, n * sizeof(float));
      } else {
        NarrowFloats(hash.type, sums, n, to);
      }
    });
  };
  if (hash.n_points == 0) {
    sum({0, 0});
  } else {
    hash.ForRounds(width, sum);
  }
}
CPU_KERNEL("HashEncodeGrad", TableGradient);
CPU_KERNEL("HashEncodeJvpGrad", TableGradient);

}  // namespace
}  // namespace metal_ops
