// Loops over strided tensors: see strided.h.

#include "device/kernels/strided.h"

#include <algorithm>
#include <utility>

#include "device/kernels/copy_params.h"
#include "kernels/runtime/platform.h"

namespace metal_ops {

std::vector<int64_t> DenseStrides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Walk Broadcast(const Shape& shape, const Shape& target) {
  Walk walk;
  const std::vector<int64_t> dense = DenseStrides(shape);
  const size_t missing = target.size() - shape.size();
  for (size_t i = 0; i < target.size(); ++i) {
    const bool repeated = i < missing || shape[i - missing] == 1;
    walk.strides.push_back(repeated ? 0 : dense[i - missing]);
  }
  return walk;
}

Status PlanLoop(const std::string& op, const Shape& shape, const std::vector<Walk>& walks,
                Loop* loop) {
  *loop = Loop();
  StridedParams* params = &loop->params;
  const auto operand = [&](size_t k) {
    return k < STRIDED_OPERANDS ? &params->operands[k] : &loop->fourth;
  };
  // Innermost first. A dimension joins the one inside it if every walk steps over that one's end
  // onto it.
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides(walks.size());
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    bool joins = !dims.empty();
    for (size_t k = 0; k < walks.size() && joins; ++k) {
      joins = walks[k].strides[i] == strides[k].back() * dims.back();
    }
    if (joins) {
      dims.back() *= shape[i];
      continue;
    }
    dims.push_back(shape[i]);
    for (size_t k = 0; k < walks.size(); ++k) strides[k].push_back(walks[k].strides[i]);
  }
  if (dims.size() > STRIDED_DIMS) {
    return Unimplemented(op, ": shape ", ToString(shape), " needs a loop over ", dims.size(),
                         " dimensions, the METAL device has ", STRIDED_DIMS,
                         "; reshape it, or place the op on the CPU");
  }
  int64_t sizes[3] = {1, 1, 1};
  for (size_t d = 0; d < STRIDED_DIMS; ++d) {
    const int64_t dim = d < dims.size() ? dims[d] : 1;
    sizes[std::min<size_t>(d, 2)] *= dim;
    params->dims[d] = static_cast<uint32_t>(dim);  // too large a one is refused with the grid
    for (size_t k = 0; k < walks.size(); ++k) {
      operand(k)->strides[d] = d < dims.size() ? strides[k][d] : 0;
    }
  }
  for (size_t k = 0; k < walks.size(); ++k) operand(k)->offset = walks[k].offset;
  loop->grid = Grid(sizes[0], sizes[1], sizes[2]);
  // A dimension of one element may have any step: 1 is as good as its own.
  if (dims.empty()) {
    for (size_t k = 0; k < walks.size(); ++k) operand(k)->strides[0] = 1;
  }
  bool rows = dims.size() <= STRIDED_ROW_DIMS && operand(walks.size() - 1)->strides[0] == 1;
  loop->variant = "rows_";
  for (size_t k = 0; k + 1 < walks.size(); ++k) {
    const int64_t step = operand(k)->strides[0];
    const bool known = step == 0 || step == 1;
    rows = rows && (known || walks.size() == 2);
    loop->variant += known || step == -1 ? std::to_string(step) : "n";
  }
  // No shader for the sum of two rows that both repeat one value: such a loop is rare.
  if (!rows || loop->variant == "rows_00") loop->variant = "strided";
  return Status();
}

Status BroadcastShape(const std::string& op, const Shape& a, const Shape& b, Shape* result) {
  result->assign(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result->size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return InvalidArgument(op, ": Incompatible shapes: ", ToString(a), " vs. ", ToString(b),
                             "; expected dimensions that are equal or 1, from the last one on");
    }
    (*result)[result->size() - 1 - i] = x == 1 ? y : x;
  }
  return Status();
}

namespace {

// A processor's cache: the lines of the result that a thread writes, and those of the source that it reads, which are
// no neighbours.
constexpr size_t kLine = 64, kLines = 4 * kLine;
// Threads below which fewer tiles are better.
constexpr int64_t kTileThreads = 64;

// Has the loop of a copy go over tiles if the source's elements are neighbours along another dimension than
// the result's. Where threads run after each other, a line may be gone from the cache when the next one needs the rest.
void PlanTiles(size_t bytes, Loop* loop, CopyTiles* several) {
  const uint32_t tile = bytes > 8 ? COPY_TILE_WIDE : COPY_TILE;
  StridedParams& params = loop->params;
  for (size_t d = 1; d < STRIDED_ROW_DIMS; ++d) {
    if (params.operands[0].strides[d] != 1 || params.dims[0] < tile || params.dims[d] < tile)
      continue;
    std::swap(params.dims[1], params.dims[d]);
    for (StridedOperand& operand : params.operands) {
      std::swap(operand.strides[1], operand.strides[d]);
    }
    const auto blocks = [&](int k, int64_t tiles) {
      return (params.dims[k] + tiles * tile - 1) / (tiles * tile);
    };
    const int64_t others = int64_t{params.dims[2]} * params.dims[3];
    const auto threads = [&] { return blocks(0, several->to) * blocks(1, several->from) * others; };
    if (!ThreadgroupsRunAtOnce()) {
      several->to = static_cast<uint32_t>(std::max<size_t>(kLine / (bytes * tile), 1));
      several->from = static_cast<uint32_t>(std::max<size_t>(kLines / (bytes * tile), 1));
    }
    while (several->from > 1 && threads() < kTileThreads) several->from /= 2;
    while (several->to > 1 && threads() < kTileThreads) several->to /= 2;
    loop->grid = Grid(blocks(0, several->to), blocks(1, several->from), others);
    loop->variant = "tiles";
    return;
  }
}

}  // namespace

Status EncodeCopy(Encoder& encoder, const std::string& op, const Shape& shape, const Value& in,
                  const Walk& from, const Tensor& out, const Walk& to) {
  if (NumElements(shape) == 0) return Status();
  Loop loop;
  RETURN_IF_ERROR(PlanLoop(op, shape, {from, to}, &loop));
  CopyTiles tiles = {1, 1};
  if (loop.variant == "rows_n") PlanTiles(out.element_bytes(), &loop, &tiles);
  std::vector<Argument> arguments = {
      {"in", in.Untyped()}, {"out", Value(out).Untyped()}, {"params", loop.params}};
  if (loop.variant == "tiles") arguments.push_back({"tiles", tiles});
  return encoder.Launch({"copy", out.element_bytes(), loop.variant}, loop.grid, arguments);
}

}  // namespace metal_ops
