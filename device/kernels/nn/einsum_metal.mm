// Einsum of one or two tensors: each is made a batch of matrices, by a copy where it is not one already; their
// product is copied to where the output has its labels.

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/nn/product.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

constexpr char kEinsum[] = "Einsum";
constexpr int kEllipsis = 256;  // and more, counted from the last of its dimensions
using Labels = std::vector<int>;

// A label's step in each tensor; a label twice in a tensor walks its diagonal.
struct Axis {
  int64_t size = 1, output_stride = 0;
  std::array<int64_t, 2> strides = {0, 0};
  std::array<bool, 2> in = {false, false};
  bool in_output = false;
};

// One tensor's part of the equation, "ab...c".
struct Subscript {
  std::string letters;
  size_t ellipsis = std::string::npos;  // where in the letters it stands

  bool has_ellipsis() const { return ellipsis != std::string::npos; }

  Status Parse(const std::string& equation, std::string part) {
    ellipsis = part.find("...");
    if (has_ellipsis()) part.erase(ellipsis, 3);
    letters = part;
    for (const char c : letters) {
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
        return InvalidArgument(
            kEinsum,
            ": equation must have letters, at most one '...' a tensor, ',' and '->', got '",
            equation, "'");
      }
    }
    return Status();
  }

  Labels Expand(size_t ellipsis_rank) const {
    Labels labels(letters.begin(), letters.end());
    if (!has_ellipsis()) return labels;
    for (size_t i = 0; i < ellipsis_rank; ++i) {
      labels.insert(labels.begin() + static_cast<int64_t>(ellipsis),
                    kEllipsis + static_cast<int>(i));
    }
    return labels;
  }
};

// How an operand is seen by the product: [batch, first, second].
struct Matrices {
  Labels order;
  bool dense = false, transposed = false;
};

class Contraction {
 public:
  Contraction(const std::vector<Subscript>& inputs, const Subscript& output)
      : inputs_(inputs), output_(output) {}

  Status Run(KernelContext* ctx) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      RETURN_IF_ERROR(ctx->Input(static_cast<int>(i), &tensors_[i]));
      RETURN_IF_ERROR(Add(i, tensors_[i].shape()));
    }
    Shape shape;
    RETURN_IF_ERROR(PlanOutput(&shape));
    Tensor out;
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    Sort();
    if (inputs_.size() == 1 && summed_.empty())
      return Place(ctx, tensors_[0], InputWalk(0, outer_[0]), outer_[0], out);
    if (inputs_.size() == 1) return MultiplyByOnes(ctx, out);
    return Multiply(ctx, out);
  }

 private:
  Status Add(size_t i, const Shape& shape) {
    const Subscript& subscript = inputs_[i];
    const size_t letters = subscript.letters.size();
    if (subscript.has_ellipsis() ? shape.size() < letters : shape.size() != letters) {
      return InvalidArgument(kEinsum, ": input ", i, " must have ", letters,
                             subscript.has_ellipsis() ? " or more" : "", " dimensions for '",
                             subscript.letters, "', got shape ", ToString(shape));
    }
    const size_t ellipsis_rank = shape.size() - letters;
    ellipsis_rank_ = std::max(ellipsis_rank_, ellipsis_rank);
    const Labels labels = subscript.Expand(ellipsis_rank);
    const std::vector<int64_t> strides = DenseStrides(shape);
    for (size_t d = 0; d < labels.size(); ++d) {
      const int label = labels[d];
      // A dimension of 1 of an ellipsis is as good as absent: it is repeated.
      if (label >= kEllipsis && shape[d] == 1) {
        axes_[label];
        continue;
      }
      Axis& axis = axes_[label];
      const bool known = axis.in[0] || axis.in[1];
      if (known && axis.size != shape[d]) {
        return InvalidArgument(kEinsum, ": dimension ", d, " of input ", i, " must be ", axis.size,
                               ", as its label has elsewhere, got shape ", ToString(shape));
      }
      axis.size = shape[d];
      axis.in[i] = true;
      axis.strides[i] += strides[d];
    }
    return Status();
  }

  Status PlanOutput(Shape* shape) {
    if (ellipsis_rank_ > 0 && !output_.has_ellipsis()) {
      return InvalidArgument(
          kEinsum, ": equation must have '...' in the output, as the inputs have dimensions there");
    }
    output_labels_ = output_.Expand(ellipsis_rank_);
    for (const int label : output_labels_) {
      const auto found = axes_.find(label);
      if (found == axes_.end()) {
        return InvalidArgument(kEinsum, ": the output's label '",
                               std::string(1, static_cast<char>(label)),
                               "' must be one of an input");
      }
      shape->push_back(found->second.size);
    }
    const std::vector<int64_t> strides = DenseStrides(*shape);
    for (size_t d = 0; d < output_labels_.size(); ++d) {
      Axis& axis = axes_[output_labels_[d]];
      repeated_ = repeated_ || axis.in_output;
      axis.in_output = true;
      axis.output_stride += strides[d];
    }
    return Status();
  }

  // Labels of the output in its order, the rest in the order of labels.
  void Sort() {
    Labels seen;
    for (const int label : output_labels_) {
      if (std::find(seen.begin(), seen.end(), label) != seen.end()) continue;
      seen.push_back(label);
      const Axis& axis = axes_[label];
      (axis.in[0] && axis.in[1] ? batch_ : outer_[axis.in[1] ? 1 : 0]).push_back(label);
    }
    for (const auto& [label, axis] : axes_) {
      if (!axis.in_output) summed_.push_back(label);
    }
  }

  Shape Sizes(const Labels& labels) const {
    Shape shape;
    for (const int label : labels) shape.push_back(axes_.at(label).size);
    return shape;
  }
  int64_t Size(const Labels& labels) const { return NumElements(Sizes(labels)); }

  Walk InputWalk(size_t i, const Labels& labels) const {
    Walk walk;
    for (const int label : labels) walk.strides.push_back(axes_.at(label).strides[i]);
    return walk;
  }

  // Whether a walk visits a tensor's elements in memory's order.
  bool IsDense(const Labels& labels, const Walk& walk) const {
    const Shape sizes = Sizes(labels);
    const std::vector<int64_t> dense = DenseStrides(sizes);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] != 1 && walk.strides[d] != dense[d]) return false;
    }
    return true;
  }

  // Operand `i` with its rows before the summed dimensions, or behind them where they lie so.
  Matrices See(size_t i, bool summed_last, const Labels& summed) const {
    const auto order = [&](bool outer_first) {
      Labels labels = batch_;
      const Labels& first = outer_first ? outer_[i] : summed;
      const Labels& second = outer_first ? summed : outer_[i];
      labels.insert(labels.end(), first.begin(), first.end());
      labels.insert(labels.end(), second.begin(), second.end());
      return labels;
    };
    for (const bool outer_first : {summed_last, !summed_last}) {
      const Labels labels = order(outer_first);
      if (IsDense(labels, InputWalk(i, labels))) return {labels, true, outer_first != summed_last};
    }
    return {order(summed_last), false, false};
  }

  Labels SummedBy(size_t i) const {
    Labels labels = summed_;
    std::sort(labels.begin(), labels.end(), [&](int a, int b) {
      const int64_t step_a = axes_.at(a).strides[i], step_b = axes_.at(b).strides[i];
      return step_a != step_b ? step_a > step_b : a < b;
    });
    return labels;
  }

  // The rows of the product are `left`'s and its columns the other's, whichever way fewer tensors are copied.
  Status Multiply(KernelContext* ctx, const Tensor& out) {
    int fewest = 4;
    size_t left = 0;
    Matrices a, b;
    for (const size_t l : {0, 1}) {
      for (const size_t by : {0, 1}) {
        const Labels summed = SummedBy(by);
        const Matrices rows = See(l, true, summed), columns = See(1 - l, false, summed);
        const int copies = !rows.dense + !columns.dense + !OutputIsDense(ProductLabels(l));
        if (copies >= fewest) continue;
        fewest = copies;
        left = l;
        a = rows;
        b = columns;
      }
    }
    Tensor a_copy, b_copy;
    RETURN_IF_ERROR(Gather(ctx, left, a, &a_copy));
    RETURN_IF_ERROR(Gather(ctx, 1 - left, b, &b_copy));
    return MultiplyMatrices(ctx, left, a.transposed, b.transposed,
                            a.dense ? tensors_[left] : a_copy,
                            b.dense ? tensors_[1 - left] : b_copy, out);
  }

  // Sums over one tensor; floats in float32 and rounded once.
  Status MultiplyByOnes(KernelContext* ctx, const Tensor& out) {
    const Matrices a = See(0, true, SummedBy(0));
    Tensor copy, ones;
    RETURN_IF_ERROR(Gather(ctx, 0, a, &copy));
    RETURN_IF_ERROR(ctx->AllocateTemp(out.dtype(), {Size(summed_)}, &ones));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
      if (ones.num_elements() == 0) return Status();
      switch (out.dtype()) {
        case DType::kFloat:
          return EncodeSpread(encoder, kEinsum, 1.0F, {}, ones);
        case DType::kComplex64:
          return EncodeSpread(encoder, kEinsum, std::array<float, 2>{1.0F, 0.0F}, {}, ones);
        case DType::kInt32:
          return EncodeSpread(encoder, kEinsum, int32_t{1}, {}, ones);
        case DType::kInt64:
          return EncodeSpread(encoder, kEinsum, int64_t{1}, {}, ones);
        default:
          const uint16_t one = out.dtype() == DType::kHalf ? 0x3C00 : 0x3F80;
          return EncodeSpread(encoder, kEinsum, one, {}, ones);
      }
    }));
    return MultiplyMatrices(ctx, 0, a.transposed, false, a.dense ? tensors_[0] : copy, ones, out);
  }

  Labels ProductLabels(size_t left) const {
    Labels labels = batch_;
    for (const size_t i : {left, 1 - left})
      labels.insert(labels.end(), outer_[i].begin(), outer_[i].end());
    return labels;
  }

  Walk OutputWalk(const Labels& labels) const {
    Walk walk;
    for (const int label : labels) walk.strides.push_back(axes_.at(label).output_stride);
    return walk;
  }
  bool OutputIsDense(const Labels& labels) const {
    return !repeated_ && IsDense(labels, OutputWalk(labels));
  }

  Status Gather(KernelContext* ctx, size_t i, const Matrices& matrices, Tensor* copy) {
    if (matrices.dense) return Status();
    const Shape sizes = Sizes(matrices.order);
    RETURN_IF_ERROR(ctx->AllocateTemp(tensors_[i].dtype(), sizes, copy));
    if (copy->num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, kEinsum, sizes, tensors_[i], InputWalk(i, matrices.order), *copy,
                        {DenseStrides(sizes), 0});
    });
  }

  Status MultiplyMatrices(KernelContext* ctx, size_t left, bool transpose_a, bool transpose_b,
                          const Tensor& a, const Tensor& b, const Tensor& out) {
    MatMulSizes sizes;
    sizes.m = Size(outer_[left]);
    sizes.n = Size(outer_[1 - left]);
    sizes.k = Size(summed_);
    sizes.batch = {Size(batch_)};
    sizes.a_strides = sizes.b_strides = {1};
    const Labels labels = ProductLabels(left);
    if (OutputIsDense(labels))
      return EncodeProduct(ctx, kEinsum, sizes, transpose_a, transpose_b, a, b, out);
    Tensor product;
    RETURN_IF_ERROR(ctx->AllocateTemp(out.dtype(), Sizes(labels), &product));
    RETURN_IF_ERROR(EncodeProduct(ctx, kEinsum, sizes, transpose_a, transpose_b, a, b, product));
    return Place(ctx, product, {DenseStrides(product.shape()), 0}, labels, out);
  }

  // Copies to the output, of which only diagonals are written where it has a label twice.
  Status Place(KernelContext* ctx, const Tensor& in, const Walk& from, const Labels& labels,
               const Tensor& out) {
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (repeated_) RETURN_IF_ERROR(EncodeZeros(encoder, kEinsum, out));
      return EncodeCopy(encoder, kEinsum, Sizes(labels), in, from, out, OutputWalk(labels));
    });
  }

  const std::vector<Subscript>& inputs_;
  const Subscript& output_;
  std::array<Tensor, 2> tensors_;
  std::map<int, Axis> axes_;
  size_t ellipsis_rank_ = 0;
  Labels output_labels_, batch_, summed_;
  std::array<Labels, 2> outer_;
  bool repeated_ = false;  // a label is twice in the output
};

class EinsumOp {
 public:
  static constexpr const char* kOp = kEinsum;

  explicit EinsumOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, Parse(ctx)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Contraction(inputs_, output_).Run(ctx)); }

 private:
  Status Parse(KernelConstruction* ctx) {
    std::string equation;
    int64_t n = 0;
    RETURN_IF_ERROR(ctx->GetAttr("equation", &equation));
    RETURN_IF_ERROR(ctx->GetAttr("N", &n));
    const size_t arrow = equation.find("->");
    if (arrow == std::string::npos) {
      return InvalidArgument(kOp, ": equation must have '->' and the output's labels, got '",
                             equation, "'");
    }
    RETURN_IF_ERROR(output_.Parse(equation, equation.substr(arrow + 2)));
    for (size_t begin = 0, end; begin <= arrow; begin = end + 1) {
      end = std::min(equation.find(',', begin), arrow);
      inputs_.emplace_back();
      RETURN_IF_ERROR(inputs_.back().Parse(equation, equation.substr(begin, end - begin)));
    }
    if (inputs_.size() > 2 || static_cast<int64_t>(inputs_.size()) != n) {
      return InvalidArgument(kOp, ": equation must be of the ", n,
                             " inputs, of which there may be 1 or 2, got '", equation, "'");
    }
    return Status();
  }

  std::vector<Subscript> inputs_;
  Subscript output_;
};
REGISTER_METAL_KERNEL(EinsumOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32, TF_INT64,
                                             TF_COMPLEX64}));

}  // namespace
}  // namespace metal_ops
