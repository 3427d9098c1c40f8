// Gradients of Conv2D, which are convolutions themselves, and of DepthwiseConv2dNative.

#include <algorithm>
#include <vector>

#include "device/kernels/layout.h"
#include "device/kernels/nn/conv_grad.h"
#include "device/kernels/nn/conv_grad_warpgroups.h"
#include "device/kernels/nn/conv_groups.h"
#include "device/kernels/nn/product.h"
#include "device/kernels/nn/windows.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// Checks of all gradients: the shapes are those of one convolution.
Status Sizes(const char* op, const ConvAttrs& attrs, const Shape& input, const Shape& filter,
             const Tensor& d_out, bool depthwise, ConvSizes* sizes) {
  ArgShapes shapes(op);
  CheckConv(&shapes, attrs, ArgShape(input), ArgShape(filter), sizes);
  RETURN_IF_ERROR(ToStatus(shapes));
  if (depthwise) sizes->out_c *= sizes->in_c;  // the filter's last dimension is the multiplier
  const Shape expected = sizes->OutputShape(attrs.nchw);
  if (d_out.shape() == expected) return Status();
  return InvalidArgument(op, ": out_backprop must have shape ", ToString(expected),
                         ", that of the convolution's output, got ", ToString(d_out.shape()));
}

Status SizesInput(KernelContext* ctx, const char* op, const char* name, int i, Shape* shape) {
  Tensor tensor;
  RETURN_IF_ERROR(ctx->Input(i, &tensor));
  RETURN_IF_ERROR(Indices(op, name, tensor, shape));
  if (shape->size() == 4 && NumElements(*shape) >= 0) return Status();
  return InvalidArgument(op, ": ", name, " must be 4 sizes >= 0, got ", ToString(*shape));
}

Status RunConv(KernelContext* ctx, const GemmParams& params, const ArgShapes& shapes,
               const Tensor& a, const Tensor& b, const Tensor& out) {
  RETURN_IF_ERROR(ToStatus(shapes));
  return RunProduct(ctx, params, a, b, out);
}

// Terms of one part of a filter's gradient: as many rows of a panel of d_out stay in the cache while
// the filter's rows pass by.
constexpr int64_t kPartTerms = 1024;
// Lines of the output below which their points are better brought together with the images.
constexpr int64_t kShortLine = 28;

// d_filter by threads that work alone, which read the input as it is.
Status FilterGradByLines(KernelContext* ctx, const char* op, const ConvSizes& s, bool nchw,
                         const ThreadTile& tile, const Tensor& input, const Tensor& d_out,
                         const Tensor& d_filter) {
  ArgShapes shapes(op);
  GemmParams params = PlanConv(&shapes, s, nchw);
  RETURN_IF_ERROR(ToStatus(shapes));
  if (!nchw && s.is_product()) {  // of which PlanConv has made one line
    params.out_h = params.in_h = static_cast<uint32_t>(s.n * s.out_h);
    params.out_w = params.in_w = static_cast<uint32_t>(s.out_w);
    params.a_y = s.in_w * s.in_c;
  }
  Tensor transposed, panels, sums;
  const Tensor *points = &d_out, *b = points, *out = &d_filter;
  if (nchw) {
    const Shape shape = {s.n, s.out_h, s.out_w, s.out_c};
    const std::vector<int64_t> from = DenseStrides(d_out.shape());
    RETURN_IF_ERROR(ctx->AllocateTemp(d_out.dtype(), shape, &transposed));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, op, shape, d_out, {{from[0], from[2], from[3], from[1]}},
                        transposed, {DenseStrides(shape)});
    }));
    points = b = &transposed;
  }
  const int64_t lines = s.n * s.out_h, rows = NumElements({s.filter_h, s.filter_w, s.in_c});
  int64_t part = std::max<int64_t>(1, kPartTerms / s.out_w);
  if (tile.panels > 1) {  // the terms stay in the cache a few at a time
    const int64_t threads = (rows + tile.rows - 1) / tile.rows;
    part = std::max(part, (lines * threads + kBusyThreads - 1) / kBusyThreads);
  }
  part = std::min(part, lines);
  const int64_t parts = (lines + part - 1) / part;
  if (points->dtype() == TF_FLOAT && s.out_c == tile.columns) {
    params.b_panel = 0;  // is one already
  } else {
    RETURN_IF_ERROR(PackProduct(ctx, tile, lines * s.out_w, params, *points, &params, &panels));
    b = &panels;
  }
  params.batch[0] = static_cast<uint32_t>(parts);
  params.out_batch = rows * s.out_c;
  const bool whole = parts == 1 && d_filter.dtype() == TF_FLOAT;
  if (!whole) {
    RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, {parts, params.out_batch}, &sums));
    out = &sums;
  }
  const GemmLines line_counts = {static_cast<uint32_t>(lines), static_cast<uint32_t>(part)};
  const Grid grid = ThreadGrid(tile, rows, s.out_c, parts, /*together=*/1);
  return Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(encoder.Launch(
        {tile.filter, input.dtype()}, grid,
        {{"in", input}, {"b", *b}, {"out", *out}, {"params", params}, {"lines", line_counts}}));
    if (whole) return Status();
    return encoder.Launch({"gemm_sum_lines", d_filter.dtype()},
                          Grid((params.out_batch + GEMM_SUM_LINE - 1) / GEMM_SUM_LINE),
                          {{"parts", sums}, {"out", d_filter}, {"params", params}});
  });
}

}  // namespace

// d_input = d_out, with zeros between its points where the stride is more than 1, convolved with the
// filter turned round.
Status ConvInputGrad(KernelContext* ctx, const char* op, const ConvSizes& s, bool nchw,
                     const Tensor& filter, const Tensor& d_out, const Tensor& d_in) {
  bool ran = false;
  if (!nchw) RETURN_IF_ERROR(RunConvInputGradByWarpgroups(ctx, s, filter, d_out, d_in, &ran));
  if (ran) return Status();
  Tensor turned, spread;
  const Shape out_shape = s.OutputShape(nchw);
  const size_t h = nchw ? 2 : 1, w = h + 1;
  ConvSizes t = s;
  t.in_h = (s.out_h - 1) * s.stride_h + 1;
  t.in_w = (s.out_w - 1) * s.stride_w + 1;
  t.in_c = s.out_c;
  t.out_h = s.in_h;
  t.out_w = s.in_w;
  t.out_c = s.in_c;
  t.stride_h = t.stride_w = 1;
  t.pad_top = (s.filter_h - 1) * s.dilation_h - s.pad_top;
  t.pad_left = (s.filter_w - 1) * s.dilation_w - s.pad_left;
  // [filter_h, filter_w, in_c, out_c], from its end, to [filter_h, filter_w, out_c, in_c].
  const Shape turned_shape = {s.filter_h, s.filter_w, s.out_c, s.in_c};
  const int64_t point = s.in_c * s.out_c;
  const Walk turn = {{-s.filter_w * point, -point, 1, s.out_c},
                     (s.filter_h * s.filter_w - 1) * point};
  const bool spreads = s.stride_h > 1 || s.stride_w > 1;
  const Shape spread_shape =
      nchw ? Shape{s.n, s.out_c, t.in_h, t.in_w} : Shape{s.n, t.in_h, t.in_w, s.out_c};
  RETURN_IF_ERROR(ctx->AllocateTemp(filter.dtype(), turned_shape, &turned));
  if (spreads) RETURN_IF_ERROR(ctx->AllocateTemp(d_out.dtype(), spread_shape, &spread));
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(
        EncodeCopy(encoder, op, turned_shape, filter, turn, turned, {DenseStrides(turned_shape)}));
    if (!spreads) return Status();
    RETURN_IF_ERROR(EncodeZeros(encoder, op, spread));
    Walk to = {DenseStrides(spread_shape)};
    to.strides[h] *= s.stride_h;
    to.strides[w] *= s.stride_w;
    return EncodeCopy(encoder, op, out_shape, d_out, {DenseStrides(out_shape)}, spread, to);
  }));
  ArgShapes shapes(op);
  const GemmParams params = PlanConv(&shapes, t, nchw);
  return RunConv(ctx, params, shapes, spreads ? spread : d_out, turned, d_in);
}

// d_filter = input convolved with d_out as the filter: the images are the channels, the channels
// images, strides and dilations change places.
Status ConvFilterGrad(KernelContext* ctx, const char* op, const ConvSizes& s, bool nchw,
                      const Tensor& input, const Tensor& d_out, const Tensor& d_filter) {
  bool ran = false;
  if (!nchw) RETURN_IF_ERROR(RunConvFilterGradByWarpgroups(ctx, s, input, d_out, d_filter, &ran));
  if (ran) return Status();
  bool tiles;
  RETURN_IF_ERROR(ChooseTiles(/*fits=*/true, &tiles));
  ThreadTile tile;
  RETURN_IF_ERROR(ChooseThreadTile(NumElements({s.filter_h, s.filter_w, s.in_c}), s.out_c,
                                   s.n * s.out_h * s.out_w, s.in_c, /*scattered=*/true, &tile));
  if (!tiles && (s.out_w >= kShortLine || tile.panels > 1)) {
    return FilterGradByLines(ctx, op, s, nchw, tile, input, d_out, d_filter);
  }
  Tensor channels, filter;
  ConvSizes t;
  t.n = s.in_c;
  t.in_h = s.in_h;
  t.in_w = s.in_w;
  t.in_c = s.n;
  t.filter_h = s.out_h;
  t.filter_w = s.out_w;
  t.out_c = s.out_c;
  t.out_h = s.filter_h;
  t.out_w = s.filter_w;
  t.stride_h = s.dilation_h;
  t.stride_w = s.dilation_w;
  t.dilation_h = s.stride_h;
  t.dilation_w = s.stride_w;
  t.pad_top = s.pad_top;
  t.pad_left = s.pad_left;
  // The images innermost, so that sums run along memory.
  const Shape channels_shape = {s.in_c, s.in_h, s.in_w, s.n};
  const Shape filter_shape = {s.out_h, s.out_w, s.n, s.out_c};
  const Shape in_shape =
      nchw ? Shape{s.n, s.in_c, s.in_h, s.in_w} : Shape{s.n, s.in_h, s.in_w, s.in_c};
  const std::vector<int64_t> in = DenseStrides(in_shape), out = DenseStrides(s.OutputShape(nchw));
  const size_t h = nchw ? 2 : 1, w = h + 1, c = nchw ? 1 : 3;
  RETURN_IF_ERROR(ctx->AllocateTemp(input.dtype(), channels_shape, &channels));
  RETURN_IF_ERROR(ctx->AllocateTemp(d_out.dtype(), filter_shape, &filter));
  RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
    RETURN_IF_ERROR(EncodeCopy(encoder, op, channels_shape, input, {{in[c], in[h], in[w], in[0]}},
                               channels, {DenseStrides(channels_shape)}));
    return EncodeCopy(encoder, op, filter_shape, d_out, {{out[h], out[w], out[0], out[c]}}, filter,
                      {DenseStrides(filter_shape)});
  }));
  ArgShapes shapes(op);
  // Not as NHWC, where rows and columns of a product have one order: of the product
  // [in_c, filter_h, filter_w, out_c] the filter has the first dimension third.
  GemmParams params = PlanConv(&shapes, t, /*nchw=*/true);
  params.a_y = s.in_w * s.n;
  params.a_x = s.n;
  params.a_c = 1;
  params.out_image = s.out_c;
  params.out_point = s.in_c * s.out_c;
  params.out_column = 1;
  RETURN_IF_ERROR(ToStatus(shapes));
  return RunLongConv(ctx, params, channels, filter, d_filter);
}

namespace {

class Conv2DBackpropInputOp {
 public:
  static constexpr char kOp[] = "Conv2DBackpropInput";

  explicit Conv2DBackpropInputOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
    attrs_.groups = nullptr;
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Shape shape;
    Tensor filter, d_out, d_in;
    ConvSizes s;
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(InputSizes(ctx, filter, d_out, &shape));
    RETURN_IF_ERROR(Sizes(kOp, attrs_, shape, filter.shape(), d_out, false, &s));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_in));
    if (d_in.num_elements() == 0) return Status();
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_in);

    int64_t groups;
    RETURN_IF_ERROR(SplitGroups(kOp, filter.shape()[2], &s, &groups));
    const size_t c = attrs_.dim_c();
    return RunGroups(ctx, kOp, groups, {filter, 3}, {d_out, c}, {d_in, c},
                     [&](const Tensor& f, const Tensor& d, const Tensor& out) {
                       return ConvInputGrad(ctx, kOp, s, attrs_.nchw, f, d, out);
                     });
  }

  // Height and width are enough.
  Status InputSizes(KernelContext* ctx, const Tensor& filter, const Tensor& d_out,
                    Shape* shape) const {
    Tensor sizes;
    RETURN_IF_ERROR(ctx->Input(0, &sizes));
    if (sizes.num_elements() != 2 || filter.rank() != 4 || d_out.rank() != 4) {
      return SizesInput(ctx, kOp, "input_sizes", 0, shape);
    }
    Shape points;
    RETURN_IF_ERROR(Indices(kOp, "input_sizes", sizes, &points));
    RETURN_IF_ERROR(CheckShape(kOp, "input_sizes", points));
    shape->assign(4, d_out.shape()[0]);
    (*shape)[attrs_.dim_h()] = points[0];
    (*shape)[attrs_.dim_w()] = points[1];
    (*shape)[attrs_.dim_c()] = filter.shape()[2];
    return Status();
  }

  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(Conv2DBackpropInputOp, .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_INT32})
                                                 .HostMemory("input_sizes"));

class Conv2DBackpropFilterOp {
 public:
  static constexpr char kOp[] = "Conv2DBackpropFilter";

  explicit Conv2DBackpropFilterOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
    attrs_.groups = nullptr;
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor input, d_out, d_filter;
    Shape shape;
    ConvSizes s;
    RETURN_IF_ERROR(ctx->Input(0, &input));
    RETURN_IF_ERROR(SizesInput(ctx, kOp, "filter_sizes", 1, &shape));
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(Sizes(kOp, attrs_, input.shape(), shape, d_out, false, &s));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_filter));
    if (d_filter.num_elements() == 0) return Status();
    if (input.num_elements() == 0 || d_out.num_elements() == 0)
      return ZeroOutput(ctx, kOp, d_filter);

    int64_t groups;
    RETURN_IF_ERROR(SplitGroups(kOp, shape[2], &s, &groups));
    const size_t c = attrs_.dim_c();
    return RunGroups(ctx, kOp, groups, {input, c}, {d_out, c}, {d_filter, 3},
                     [&](const Tensor& in, const Tensor& d, const Tensor& out) {
                       return ConvFilterGrad(ctx, kOp, s, attrs_.nchw, in, d, out);
                     });
  }

  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(Conv2DBackpropFilterOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("filter_sizes"));

class DepthwiseInputGradOp {
 public:
  static constexpr char kOp[] = "DepthwiseConv2dNativeBackpropInput";

  explicit DepthwiseInputGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Shape shape;
    Tensor filter, d_out, d_in;
    ConvSizes s;
    RETURN_IF_ERROR(SizesInput(ctx, kOp, "input_sizes", 0, &shape));
    RETURN_IF_ERROR(ctx->Input(1, &filter));
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(Sizes(kOp, attrs_, shape, filter.shape(), d_out, true, &s));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_in));
    if (d_in.num_elements() == 0) return Status();
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_in);
    WindowParams params;
    RETURN_IF_ERROR(PlanWindows(kOp, s, attrs_.nchw, &params));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(WindowShader("depthwise_input_grad", d_in.dtype(), s, attrs_.nchw),
                            InputGrid(s, attrs_.nchw),
                            {{"filter", filter}, {"d_out", d_out}, {"d_in", d_in}, {"p", params}});
    });
  }

  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(DepthwiseInputGradOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("input_sizes"));

class DepthwiseFilterGradOp {
 public:
  static constexpr char kOp[] = "DepthwiseConv2dNativeBackpropFilter";

  explicit DepthwiseFilterGradOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetConvAttrs(ctx, kOp, &attrs_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor input, d_out, d_filter, parts;
    Shape shape;
    ConvSizes s;
    RETURN_IF_ERROR(ctx->Input(0, &input));
    RETURN_IF_ERROR(SizesInput(ctx, kOp, "filter_sizes", 1, &shape));
    RETURN_IF_ERROR(ctx->Input(2, &d_out));
    RETURN_IF_ERROR(Sizes(kOp, attrs_, input.shape(), shape, d_out, true, &s));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_filter));
    if (d_filter.num_elements() == 0) return Status();
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_filter);
    WindowParams params;
    RETURN_IF_ERROR(PlanWindows(kOp, s, attrs_.nchw, &params));
    const int64_t rows = s.n * s.out_h;
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", d_filter.num_elements()));
    const auto elements = static_cast<uint32_t>(d_filter.num_elements());
    const auto row_count = static_cast<uint32_t>(rows);
    RETURN_IF_ERROR(ctx->AllocateTemp(DType::kFloat, {rows, d_filter.num_elements()}, &parts));
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(
          encoder.Launch(WindowShader("depthwise_filter_parts", input.dtype(), s, attrs_.nchw),
                         Grid(s.out_c / WindowLanes(s, attrs_.nchw), s.filter_h * s.filter_w, rows),
                         {{"in", input}, {"d_out", d_out}, {"parts", parts}, {"p", params}}));
      return encoder.Launch(
          {"depthwise_filter_sum", input.dtype()}, Grid(elements),
          {{"parts", parts}, {"d_filter", d_filter}, {"rows", row_count}, {"elements", elements}});
    });
  }

  ConvAttrs attrs_;
};
REGISTER_METAL_KERNEL(DepthwiseFilterGradOp,
                      .Types("T", {TF_FLOAT, TF_HALF, TF_BFLOAT16}).HostMemory("filter_sizes"));

}  // namespace
}  // namespace metal_ops
