// FusedMlp and FusedMlpGrad on the CPU: a chunk of the batch goes through all layers while it is in
// the cache. Weights are packed into panels for the tiles of fused_gemm_simd.h.

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/fused_matmul/fused_gemm_simd.h"
#include "kernels/fused_mlp/fused_mlp_plan.h"
#include "kernels/fused_mlp/fused_mlp_simd.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

// Rows of a chunk: whole tiles on every machine.
constexpr int64_t kChunk = 96;
// The weights' gradient is summed in so many parts at most, whatever the number of threads: results
// do not depend on that. A part has a few chunks at least.
constexpr int64_t kMostParts = 32, kPartChunks = 4;

int64_t Pieces(int64_t n, int64_t piece) { return (n + piece - 1) / piece; }

// A matrix in panels of as many columns as a tile has, zeros behind the last. The last one is
// narrow if half as many are enough.
struct Panels {
  std::vector<float> values;
  int64_t terms = 0, columns = 0;
};

// One call: the arrays that all threads read.
class Mlp {
 public:
  Mlp(const CpuCall& call, int x, int weights, bool with_backward)
      : plan(call),
        end_{plan.activation, plan.shape, call.floats(x).type},
        x_(call.floats(x)),
        tile_(TileSize()) {
    std::vector<float> copy(plan.n_weights());
    const float* const all = call.floats(weights).Read(0, plan.n_weights(), copy.data());
    for (int l = 0; l < plan.n_layers; ++l) {
      const float* const matrix = all + plan.matrix(l);
      const int64_t rows = plan.rows(l), columns = plan.columns(l);
      forward_.push_back(Pack(matrix, rows, columns, columns, 1));
      if (with_backward) backward_.push_back(Pack(matrix, columns, rows, 1, columns));
      biases_.emplace_back(Line(columns), 0.0f);
      if (plan.use_bias) std::copy_n(all + plan.bias(l), columns, biases_.back().data());
    }
  }

  // Floats between the rows of a chunk's arrays, in half tiles.
  int64_t Line(int64_t columns) const { return Pieces(columns, Half()) * Half(); }
  int64_t MostColumns() const { return std::max({plan.inputs, plan.width, plan.outputs}); }
  // Floats of an array of a chunk; tiles read a few behind the end.
  int64_t ChunkSize() const { return kChunk * Line(MostColumns()) + kMaxTileColumns; }

  MlpLayerEnd End(int l) const {
    MlpLayerEnd end = end_;
    end.activation = plan.activation_of(l);
    return end;
  }

  // x's rows [begin, begin + n) as a chunk.
  void ReadRows(const FloatArray& from, int64_t columns, int64_t begin, int64_t n,
                float* to) const {
    for (int64_t r = 0; r < n; ++r) {
      WidenFloats(from.type, from.At((begin + r) * columns), columns, to + r * Line(columns));
    }
  }
  void WriteRows(const float* from, int64_t columns, int64_t begin, int64_t n,
                 const MutableFloatArray& to) const {
    for (int64_t r = 0; r < n; ++r) {
      NarrowFloats(to.type, from + r * Line(columns), columns, to.At((begin + r) * columns));
    }
  }
  void ReadX(int64_t begin, int64_t n, float* to) const { ReadRows(x_, plan.inputs, begin, n, to); }

  // Layer l: n rows of `from` to as many of `to`.
  void Forward(int l, int64_t n, const float* from, float* to) const {
    const MlpLayerEnd end = End(l);
    const int64_t line = Line(plan.columns(l));
    Product(forward_[l], n, from, [&](int64_t row, int rows, int64_t column, const float* tile) {
      ActivateTile(end, rows, IsNarrow(line, column), tile, biases_[l].data() + column,
                   to + row * line + column, line);
    });
  }

  // From the gradient of layer l's sums, n rows of `from`, to that of the sums of the layer before,
  // whose values are `y`; y is null for the network's input.
  void Backward(int l, int64_t n, const float* from, const float* y, float* to) const {
    MlpLayerEnd end = End(l - 1);
    const int64_t line = Line(plan.rows(l));
    if (y == nullptr) end.activation = MLP_NONE, y = to;
    Product(backward_[l], n, from, [&](int64_t row, int rows, int64_t column, const float* tile) {
      const int64_t at = row * line + column;
      ScaleTile(end, rows, IsNarrow(line, column), tile, tile_.columns, y + at, line, to + at,
                line);
    });
  }

  // to = d activation'(.) of the last layer, whose values are y.
  void BackwardOfOutputs(int64_t n, const float* d, const float* y, float* to) const {
    const int64_t line = Line(plan.outputs);
    for (int64_t column = 0; column < line; column += tile_.columns) {
      ScaleTile(End(plan.n_layers - 1), static_cast<int>(n), IsNarrow(line, column), d + column,
                line, y + column, line, to + column, line);
    }
  }

  // ---- sums over the batch: of each layer the tiles of its matrix, then its biases
  int64_t SumsOf(int l) const {
    const int64_t columns = plan.columns(l);
    const int64_t tiles = Pieces(plan.rows(l), tile_.rows) * Pieces(columns, tile_.columns);
    return tiles * tile_.rows * tile_.columns + Line(columns);
  }
  int64_t NSums() const {
    int64_t n = 0;
    for (int l = 0; l < plan.n_layers; ++l) n += SumsOf(l);
    return n;
  }

  // Adds the part of n rows: `from` is the layer's input, `d` the gradient of its sums. Rows are
  // terms here, so that rows behind the n-th do not count.
  void AddWeights(int l, int64_t n, const float* from, const float* d, float* sums) const {
    const int64_t a_row = Line(plan.rows(l)), b_row = Line(plan.columns(l));
    for (int64_t row = 0; row < plan.rows(l); row += tile_.rows) {
      for (int64_t column = 0; column < b_row; column += tile_.columns) {
        const int rows = static_cast<int>(std::min<int64_t>(tile_.rows, plan.rows(l) - row));
        AddTileOfColumns(from + row, a_row, n, d + column, b_row, rows, IsNarrow(b_row, column),
                         sums);
        sums += int64_t{tile_.rows} * tile_.columns;
      }
    }
    if (!plan.use_bias) return;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t j = 0; j < b_row; ++j) sums[j] += d[r * b_row + j];
    }
  }

  // From the tiles to the order of the weights.
  void Unpack(const float* sums, float* weights) const {
    for (int l = 0; l < plan.n_layers; ++l) {
      const int64_t columns = plan.columns(l), panels = Pieces(columns, tile_.columns);
      for (int64_t i = 0; i < plan.rows(l); ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t tile = i / tile_.rows * panels + j / tile_.columns;
          weights[plan.matrix(l) + i * columns + j] =
              sums[(tile * tile_.rows + i % tile_.rows) * tile_.columns + j % tile_.columns];
        }
      }
      sums += SumsOf(l);
      if (plan.use_bias) std::copy_n(sums - Line(columns), columns, weights + plan.bias(l));
    }
  }

  const MlpPlan plan;

 private:
  Panels Pack(const float* from, int64_t rows, int64_t columns, int64_t row_step,
              int64_t column_step) const {
    Panels panels;
    panels.terms = rows;
    panels.columns = columns;
    panels.values.assign(rows * Line(columns), 0.0f);
    float* to = panels.values.data();
    for (int64_t column = 0; column < columns; column += tile_.columns) {
      const int64_t width = PanelWidth(Line(columns), column);
      for (int64_t i = 0; i < rows; ++i, to += width) {
        for (int64_t j = column; j < std::min(columns, column + width); ++j) {
          to[j - column] = from[i * row_step + j * column_step];
        }
      }
    }
    return panels;
  }

  int64_t Half() const { return tile_.columns / 2; }
  bool IsNarrow(int64_t line, int64_t column) const { return column + Half() == line; }
  int64_t PanelWidth(int64_t line, int64_t column) const {
    return IsNarrow(line, column) ? Half() : tile_.columns;
  }

  // Calls finish(row, rows, column, tile) with each tile of the product of n rows.
  template <typename Finish>
  void Product(const Panels& b, int64_t n, const float* from, const Finish& finish) const {
    alignas(64) float tile[kMaxTileRows * kMaxTileColumns];
    const float* lines[kMaxTileRows];
    const int64_t line = Line(b.terms), to_line = Line(b.columns);
    for (int64_t row = 0; row < n; row += tile_.rows) {
      const int rows = static_cast<int>(std::min<int64_t>(tile_.rows, n - row));
      for (int r = 0; r < tile_.rows; ++r) lines[r] = from + (row + std::min(r, rows - 1)) * line;
      for (int64_t column = 0; column < b.columns; column += tile_.columns) {
        SumTile(lines, 1, b.terms, b.values.data() + b.terms * column, PanelWidth(to_line, column),
                tile, IsNarrow(to_line, column));
        finish(row, rows, column, tile);
      }
    }
  }

  const MlpLayerEnd end_;
  const FloatArray x_;
  const GemmTileSize tile_;
  std::vector<Panels> forward_, backward_;
  std::vector<std::vector<float>> biases_;
};

void FusedMlp(CpuCall& call) {
  const MlpPlan plan(call);
  if (plan.batch == 0) return;
  const Mlp mlp(call, 0, 1, /*with_backward=*/false);
  const int64_t cycles = kChunk * plan.n_weights() / 16;
  call.ParallelFor(Pieces(plan.batch, kChunk), cycles, [&](int64_t first, int64_t last) {
    std::vector<float> values(mlp.ChunkSize()), next(mlp.ChunkSize());
    for (int64_t begin = first * kChunk; begin < std::min(last * kChunk, plan.batch);
         begin += kChunk) {
      const int64_t n = std::min(kChunk, plan.batch - begin);
      mlp.ReadX(begin, n, values.data());
      for (int l = 0; l < plan.n_layers; ++l) {
        mlp.Forward(l, n, values.data(), next.data());
        values.swap(next);
      }
      mlp.WriteRows(values.data(), plan.outputs, begin, n, call.float_out(0));
    }
  });
}
CPU_KERNEL("FusedMlp", FusedMlp);

void FusedMlpGrad(CpuCall& call) {
  const MlpPlan plan(call);
  const bool d_x = call.Bool("x_gradient") && call.IsWanted(0), d_weights = call.IsWanted(1);
  const Mlp mlp(call, 1, 2, /*with_backward=*/true);
  const int64_t chunks = Pieces(plan.batch, kChunk);
  const int64_t parts = std::clamp<int64_t>(chunks / kPartChunks, 1, kMostParts);
  std::vector<float> sums(d_weights ? parts * mlp.NSums() : 0, 0.0f);
  call.RunTasks(parts, call.n_threads(), [&](int64_t part, int64_t) {
    std::vector<std::vector<float>> values(plan.n_layers + 1, std::vector<float>(mlp.ChunkSize()));
    std::vector<float> d(mlp.ChunkSize()), next(mlp.ChunkSize());
    for (int64_t chunk = part * chunks / parts; chunk < (part + 1) * chunks / parts; ++chunk) {
      const int64_t begin = chunk * kChunk, n = std::min(kChunk, plan.batch - begin);
      mlp.ReadX(begin, n, values[0].data());
      for (int l = 0; l < plan.n_layers; ++l) {
        mlp.Forward(l, n, values[l].data(), values[l + 1].data());
      }
      mlp.ReadRows(call.floats(0), plan.outputs, begin, n, next.data());
      mlp.BackwardOfOutputs(n, next.data(), values[plan.n_layers].data(), d.data());
      float* to = sums.data() + (d_weights ? (part + 1) * mlp.NSums() : 0);
      for (int l = plan.n_layers - 1; l >= 0; --l) {
        if (d_weights) {
          to -= mlp.SumsOf(l);
          mlp.AddWeights(l, n, values[l].data(), d.data(), to);
        }
        if (l == 0 && !d_x) break;
        mlp.Backward(l, n, d.data(), l > 0 ? values[l].data() : nullptr, next.data());
        d.swap(next);
      }
      if (d_x) mlp.WriteRows(d.data(), plan.inputs, begin, n, call.float_out(0));
    }
  });
  if (!d_weights) return;
  const int64_t n_sums = mlp.NSums();
  for (int64_t part = 1; part < parts; ++part) {
    const float* const from = sums.data() + part * n_sums;
    for (int64_t i = 0; i < n_sums; ++i) sums[i] += from[i];
  }
  std::vector<float> weights(plan.n_weights());
  mlp.Unpack(sums.data(), weights.data());
  NarrowFloats(call.float_out(1).type, weights.data(), plan.n_weights(), call.out<void>(1));
}
CPU_KERNEL("FusedMlpGrad", FusedMlpGrad);

}  // namespace
}  // namespace metal_ops
