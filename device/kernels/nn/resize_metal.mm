// ResizeBilinear, ResizeNearestNeighbor, CropAndResize and their gradients; ImageProjectiveTransform.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "device/kernels/elementwise.h"
#include "device/kernels/layout.h"
#include "device/kernels/nn/image_params.h"
#include "device/kernels/nn/volumes.h"
#include "kernels/runtime/encoder.h"
#include "kernels/runtime/platform.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// The sizes that the shaders count in 32 bits.
Status CheckImage(const char* op, const char* name, const Shape& shape) {
  if (shape.size() != 4) {
    return InvalidArgument(op, ": ", name, " must be 4-dimensional, [batch, height, width, ",
                           "channels], got ", ToString(shape));
  }
  for (const int64_t size : {shape[0], shape[1], shape[2] * shape[3]}) {
    RETURN_IF_ERROR(CheckGrid(op, "images, rows or values of a row", size));
  }
  return Status();
}

// Height and width in host memory.
Status HeightAndWidth(const char* op, const char* name, const Tensor& tensor, Shape* sizes) {
  if (tensor.shape() != Shape{2}) {
    return InvalidArgument(op, ": ", name, " must be 1-dimensional with 2 elements, got shape ",
                           ToString(tensor.shape()));
  }
  RETURN_IF_ERROR(Indices(op, name, tensor, sizes));
  if ((*sizes)[0] > 0 && (*sizes)[1] > 0) return Status();
  return InvalidArgument(op, ": output dimensions must be positive, got ", name, " = ",
                         ToString(*sizes));
}

// Grid: (width * channels, height, images) of `shape`.
Grid ImageGrid(const Shape& shape) { return Grid(shape[2] * shape[3], shape[1], shape[0]); }
// How many of `n` neighbours a thread has.
int64_t ResizeLanes(int64_t n) {
  return n >= RESIZE_MANY_LANES && !ThreadgroupsRunAtOnce() ? RESIZE_MANY_LANES : RESIZE_LANES;
}
std::string ResizeShader(const char* stem, int64_t n) {
  return ResizeLanes(n) == RESIZE_LANES ? stem : std::string(stem) + "_many_lanes";
}
int64_t BlocksOf(int64_t n) { return (n + ResizeLanes(n) - 1) / ResizeLanes(n); }
// A thread per block of a pixel's channels.
Grid BlockGrid(const Shape& shape) {
  return Grid(shape[2] * BlocksOf(shape[3]), shape[1], shape[0]);
}

// ---- resizing -----------------------------------------------------------------------------------

struct ResizeAttrs {
  bool align_corners = false, half_pixel_centers = false;

  Status Get(KernelConstruction* ctx, const char* op) {
    RETURN_IF_ERROR(ctx->GetAttr("align_corners", &align_corners));
    RETURN_IF_ERROR(ctx->GetAttr("half_pixel_centers", &half_pixel_centers));
    if (!align_corners || !half_pixel_centers) return Status();
    return InvalidArgument(op, ": If half_pixel_centers is True, align_corners must be False.");
  }

  float Scale(int64_t in, int64_t out) const {
    return align_corners && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                    : static_cast<float>(in) / static_cast<float>(out);
  }

  // From images of shape `in` to images of shape `out`.
  Status Plan(const char* op, const Shape& in, const Shape& out, ResizeParams* p) const {
    RETURN_IF_ERROR(CheckImage(op, "images", in));
    RETURN_IF_ERROR(CheckImage(op, "images", out));
    if (in[1] <= 0 || in[2] <= 0) {
      return InvalidArgument(op, ": input image must be of non-zero size, got ", ToString(in));
    }
    *p = {};
    p->in_h = static_cast<uint32_t>(in[1]);
    p->in_w = static_cast<uint32_t>(in[2]);
    p->out_h = static_cast<uint32_t>(out[1]);
    p->out_w = static_cast<uint32_t>(out[2]);
    p->channels = static_cast<uint32_t>(in[3]);
    p->scale_h = Scale(in[1], out[1]);
    p->scale_w = Scale(in[2], out[2]);
    p->half_pixel_centers = half_pixel_centers ? 1 : 0;
    p->align_corners = align_corners ? 1 : 0;
    return Status();
  }
};

Shape Resized(const Shape& image, const Shape& size) {
  return {image[0], size[0], size[1], image[3]};
}

template <typename Op>
class ResizeOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ResizeOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor images, size, out;
    Shape sizes;
    ResizeParams p;
    RETURN_IF_ERROR(ctx->Input(0, &images));
    RETURN_IF_ERROR(ctx->Input(1, &size));
    RETURN_IF_ERROR(CheckImage(kOp, "images", images.shape()));
    RETURN_IF_ERROR(HeightAndWidth(kOp, "size", size, &sizes));
    const Shape shape = Resized(images.shape(), sizes);
    RETURN_IF_ERROR(attrs_.Plan(kOp, images.shape(), shape, &p));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    const Shader shader(ResizeShader(Op::kShader, shape[3]),
                        Op::kBits ? Bits(images) : images.dtype());
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          shader, BlockGrid(shape),
          {{"in", Value(images).Untyped()}, {"out", Value(out).Untyped()}, {"p", p}});
    });
  }

  ResizeAttrs attrs_;
};
struct ResizeBilinear {
  static constexpr char kOp[] = "ResizeBilinear";
  static constexpr char kShader[] = "resize_bilinear";
  static constexpr bool kBits = false;
};
struct ResizeNearest {
  static constexpr char kOp[] = "ResizeNearestNeighbor";
  static constexpr char kShader[] = "resize_nearest";
  static constexpr bool kBits = true;
};
REGISTER_METAL_KERNEL(ResizeOp<ResizeBilinear>,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("size"));
REGISTER_METAL_KERNEL(ResizeOp<ResizeNearest>,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("size"));

// The images' shape: that of an example, or from sizes in host memory.
struct ResizeBilinearGrad {
  static constexpr char kOp[] = "ResizeBilinearGrad";
  static constexpr char kWay[] = "bilinear";
  static constexpr bool kNearest = false;

  static Status ImageShape(const Tensor& image, const Tensor& d_out, Shape* shape) {
    *shape = image.shape();
    if (shape->size() != 4 || ((*shape)[0] == d_out.dim(0) && (*shape)[3] == d_out.dim(3))) {
      return Status();
    }
    return InvalidArgument(kOp, ": grads and original_image must have the same batch and ",
                           "channels, got ", ToString(d_out.shape()), " and ", ToString(*shape));
  }
};
struct ResizeNearestGrad {
  static constexpr char kOp[] = "ResizeNearestNeighborGrad";
  static constexpr char kWay[] = "nearest";
  static constexpr bool kNearest = true;

  static Status ImageShape(const Tensor& size, const Tensor& d_out, Shape* shape) {
    Shape sizes;
    RETURN_IF_ERROR(HeightAndWidth(kOp, "size", size, &sizes));
    *shape = Resized(d_out.shape(), sizes);
    return Status();
  }
};

template <typename Op>
class ResizeGradOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit ResizeGradOp(KernelConstruction* ctx) { OP_REQUIRES_OK(ctx, attrs_.Get(ctx, kOp)); }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor d_out, image, d_in;
    Shape shape;
    ResizeParams p;
    RETURN_IF_ERROR(ctx->Input(0, &d_out));
    RETURN_IF_ERROR(ctx->Input(1, &image));
    RETURN_IF_ERROR(CheckImage(kOp, "grads", d_out.shape()));
    RETURN_IF_ERROR(Op::ImageShape(image, d_out, &shape));
    RETURN_IF_ERROR(attrs_.Plan(kOp, shape, d_out.shape(), &p));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_in));
    if (d_out.num_elements() == 0) return ZeroOutput(ctx, kOp, d_in);
    if (Op::kNearest && p.out_h <= kCopies * p.in_h && p.out_w <= kCopies * p.in_w) {
      const std::vector<uint32_t> rows = FirstCopies(p.in_h, p.out_h, p.scale_h),
                                  columns = FirstCopies(p.in_w, p.out_w, p.scale_w);
      return Encode(ctx, [&](Encoder& encoder) {
        return encoder.Launch({ResizeShader("resize_nearest_grad", shape[3]), d_out.dtype()},
                              BlockGrid(shape),
                              {{"d_out", d_out},
                               {"d_in", d_in},
                               {"rows", HostArray(rows.data(), int64_t{p.in_h} + 1)},
                               {"columns", HostArray(columns.data(), int64_t{p.in_w} + 1)},
                               {"p", p}});
      });
    }
    // First across, then down; in between in float if in floats.
    const DType dtype = d_in.dtype();
    const bool floats =
        dtype == DType::kFloat || dtype == DType::kHalf || dtype == DType::kBfloat16;
    Tensor across;
    const Shape half = {shape[0], d_out.dim(1), shape[2], shape[3]};
    RETURN_IF_ERROR(ctx->AllocateTemp(floats ? DType::kFloat : dtype, half, &across));
    RETURN_IF_ERROR(CheckGrid(kOp, "rows", half[0] * half[1]));
    RETURN_IF_ERROR(CheckGrid(kOp, "values of a row", half[2] * half[3]));
    const ResizeAxis x = Axis(p.in_w, p.out_w, p.channels, p.scale_w, p);
    const ResizeAxis y = Axis(p.in_h, p.out_h, p.in_w * p.channels, p.scale_h, p);
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      RETURN_IF_ERROR(encoder.Launch({GradShader(x), Op::kWay, d_out.dtype(), across.dtype()},
                                     AxisGrid(x, half[0] * half[1]),
                                     {{"d_out", d_out}, {"d_in", across}, {"p", x}}));
      return encoder.Launch({GradShader(y), Op::kWay, across.dtype(), dtype}, AxisGrid(y, shape[0]),
                            {{"d_out", across}, {"d_in", d_in}, {"p", y}});
    });
  }

  // Per pixel along a dimension: where there are more, two passes have more threads.
  static constexpr uint32_t kCopies = 4;

  // For each point along a dimension the first result that copies it or one after it, and the number of results.
  std::vector<uint32_t> FirstCopies(uint32_t size, uint32_t results, float scale) const {
    std::vector<uint32_t> firsts;
    for (uint32_t i = 0; i < results; ++i) {
      const float from = static_cast<float>(i),
                  at = (attrs_.half_pixel_centers ? from + 0.5f : from) * scale;
      const float nearest = attrs_.align_corners ? std::round(at) : std::floor(at);
      const auto last = static_cast<float>(size - 1);
      while (firsts.size() <= std::min(nearest, last)) firsts.push_back(i);
    }
    firsts.resize(size_t{size} + 1, results);
    return firsts;
  }

  static ResizeAxis Axis(uint32_t size, uint32_t results, uint32_t inner, float scale,
                         const ResizeParams& p) {
    return {size, results, inner, scale, p.half_pixel_centers, p.align_corners};
  }
  static std::string GradShader(const ResizeAxis& axis) {
    return ResizeShader("resize_grad", axis.inner);
  }
  static Grid AxisGrid(const ResizeAxis& axis, int64_t outer) {
    return Grid(BlocksOf(axis.inner), axis.size, outer);
  }

  ResizeAttrs attrs_;
};
REGISTER_METAL_KERNEL(ResizeGradOp<ResizeBilinearGrad>, .Types("T", METAL_DEVICE_FLOATS));
REGISTER_METAL_KERNEL(ResizeGradOp<ResizeNearestGrad>,
                      .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("size"));

// ---- crops --------------------------------------------------------------------------------------

Status GetMethod(KernelConstruction* ctx, const char* op, bool bilinear_alone, CropParams* p) {
  std::string method;
  RETURN_IF_ERROR(ctx->GetAttr("method", &method));
  *p = {};
  p->nearest = method == "nearest" ? 1 : 0;
  if (method == "bilinear" || (method == "nearest" && !bilinear_alone)) return Status();
  return InvalidArgument(op, ": method must be 'bilinear'", bilinear_alone ? "" : " or 'nearest'",
                         ", got '", method, "'");
}

Status PlanCrops(const char* op, const Shape& image, const Tensor& boxes, const Tensor& box_ind,
                 const Shape& crop, CropParams* p) {
  RETURN_IF_ERROR(CheckImage(op, "image", image));
  if (image[1] <= 0 || image[2] <= 0) {
    return InvalidArgument(op, ": image dimensions must be positive, got ", ToString(image));
  }
  if (boxes.rank() != 2 || boxes.dim(1) != 4 || box_ind.shape() != Shape{boxes.dim(0)}) {
    return InvalidArgument(op, ": boxes must be [boxes, 4] and box_ind [boxes], got ",
                           ToString(boxes.shape()), " and ", ToString(box_ind.shape()));
  }
  RETURN_IF_ERROR(CheckGrid(op, "boxes", boxes.dim(0)));
  p->images = static_cast<uint32_t>(image[0]);
  p->in_h = static_cast<uint32_t>(image[1]);
  p->in_w = static_cast<uint32_t>(image[2]);
  p->channels = static_cast<uint32_t>(image[3]);
  p->boxes = static_cast<uint32_t>(boxes.dim(0));
  p->crop_h = static_cast<uint32_t>(crop[0]);
  p->crop_w = static_cast<uint32_t>(crop[1]);
  return CheckGrid(op, "values of a row", crop[1] * image[3]);
}

// Gradients of crops of images of shape `image`.
Status PlanCropGrads(const char* op, const Tensor& d_crops, const Shape& image, const Tensor& boxes,
                     const Tensor& box_ind, CropParams* p) {
  RETURN_IF_ERROR(CheckImage(op, "grads", d_crops.shape()));
  RETURN_IF_ERROR(PlanCrops(op, image, boxes, box_ind, {d_crops.dim(1), d_crops.dim(2)}, p));
  if (d_crops.dim(0) == boxes.dim(0) && d_crops.dim(3) == image[3]) return Status();
  return InvalidArgument(op, ": grads must be [", boxes.dim(0), ", crop_height, crop_width, ",
                         image[3], "], as many boxes and channels as there are, got ",
                         ToString(d_crops.shape()));
}

class CropOp {
 public:
  static constexpr char kOp[] = "CropAndResize";

  explicit CropOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetMethod(ctx, kOp, false, &p_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("extrapolation_value", &p_.outside));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor image, boxes, box_ind, crop_size, crops;
    Shape size;
    CropParams p = p_;
    RETURN_IF_ERROR(ctx->Input(0, &image));
    RETURN_IF_ERROR(ctx->Input(1, &boxes));
    RETURN_IF_ERROR(ctx->Input(2, &box_ind));
    RETURN_IF_ERROR(ctx->Input(3, &crop_size));
    RETURN_IF_ERROR(HeightAndWidth(kOp, "crop_size", crop_size, &size));
    RETURN_IF_ERROR(PlanCrops(kOp, image.shape(), boxes, box_ind, size, &p));
    const Shape shape = {boxes.dim(0), size[0], size[1], image.dim(3)};
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &crops));
    if (crops.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          {ResizeShader("crop_and_resize", shape[3]), image.dtype()}, BlockGrid(shape),
          {{"image", image}, {"boxes", boxes}, {"box_ind", box_ind}, {"crops", crops}, {"p", p}});
    });
  }

  CropParams p_;
};
REGISTER_METAL_KERNEL(CropOp, .Types("T", METAL_DEVICE_ALL_NUMBERS).HostMemory("crop_size"));

class CropGradImageOp {
 public:
  static constexpr char kOp[] = "CropAndResizeGradImage";

  explicit CropGradImageOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetMethod(ctx, kOp, false, &p_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor d_crops, boxes, box_ind, image_size, d_image, sums;
    Shape shape;
    CropParams p = p_;
    RETURN_IF_ERROR(ctx->Input(0, &d_crops));
    RETURN_IF_ERROR(ctx->Input(1, &boxes));
    RETURN_IF_ERROR(ctx->Input(2, &box_ind));
    RETURN_IF_ERROR(ctx->Input(3, &image_size));
    RETURN_IF_ERROR(Indices(kOp, "image_size", image_size, &shape));
    if (shape.size() != 4 || NumElements(shape) < 0) {
      return InvalidArgument(kOp, ": image_size must be 4 sizes >= 0, got ", ToString(shape));
    }
    RETURN_IF_ERROR(PlanCropGrads(kOp, d_crops, shape, boxes, box_ind, &p));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &d_image));
    if (d_image.num_elements() == 0) return Status();
    const bool in_place = d_image.dtype() == TF_FLOAT;
    if (!in_place) RETURN_IF_ERROR(ctx->AllocateTemp(TF_FLOAT, shape, &sums));
    const Tensor& out = in_place ? d_image : sums;
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (d_crops.num_elements() == 0) {
        RETURN_IF_ERROR(EncodeZeros(encoder, kOp, out));
      } else {
        RETURN_IF_ERROR(encoder.Launch(ResizeShader("crop_grad_image", shape[3]),
                                       Grid(BlocksOf(shape[3]), shape[1], shape[0]),
                                       {{"d_crops", d_crops},
                                        {"boxes", boxes},
                                        {"box_ind", box_ind},
                                        {"sums", out},
                                        {"p", p}}));
      }
      if (in_place) return Status();
      return encoder.Launch({"cast", TF_FLOAT, d_image.dtype()}, Grid(d_image.num_elements()),
                            {{"x", sums}, {"out", d_image}});
    });
  }

  CropParams p_;
};
REGISTER_METAL_KERNEL(CropGradImageOp, .Types("T", {TF_FLOAT, TF_HALF}).HostMemory("image_size"));

class CropGradBoxesOp {
 public:
  static constexpr char kOp[] = "CropAndResizeGradBoxes";

  explicit CropGradBoxesOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetMethod(ctx, kOp, true, &p_));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor d_crops, image, boxes, box_ind, d_boxes;
    CropParams p = p_;
    RETURN_IF_ERROR(ctx->Input(0, &d_crops));
    RETURN_IF_ERROR(ctx->Input(1, &image));
    RETURN_IF_ERROR(ctx->Input(2, &boxes));
    RETURN_IF_ERROR(ctx->Input(3, &box_ind));
    RETURN_IF_ERROR(CheckImage(kOp, "image", image.shape()));
    RETURN_IF_ERROR(PlanCropGrads(kOp, d_crops, image.shape(), boxes, box_ind, &p));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, boxes.shape(), &d_boxes));
    if (d_boxes.num_elements() == 0) return Status();
    return Encode(ctx, [&](Encoder& encoder) -> Status {
      if (d_crops.num_elements() == 0) return EncodeZeros(encoder, kOp, d_boxes);
      return encoder.Launch({"crop_grad_boxes", image.dtype()}, Grid(boxes.dim(0)),
                            {{"d_crops", d_crops},
                             {"image", image},
                             {"boxes", boxes},
                             {"box_ind", box_ind},
                             {"d_boxes", d_boxes},
                             {"p", p}});
    });
  }

  CropParams p_;
};
REGISTER_METAL_KERNEL(CropGradBoxesOp, .Types("T", METAL_DEVICE_ALL_NUMBERS));

// ---- projections --------------------------------------------------------------------------------

template <typename Op>
class TransformOp {
 public:
  static constexpr const char* kOp = Op::kOp;

  explicit TransformOp(KernelConstruction* ctx) {
    std::string interpolation, mode;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("interpolation", &interpolation));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill_mode", &mode));
    const bool bilinear = interpolation == "BILINEAR";
    OP_REQUIRES(ctx, bilinear || interpolation == "NEAREST",
                InvalidArgument(kOp, ": Invalid interpolation ", interpolation,
                                ". Supported types: NEAREST, BILINEAR"));
    p_.bilinear = bilinear ? 1 : 0;
    static const char* const kModes[] = {"CONSTANT", "REFLECT", "WRAP", "NEAREST"};
    p_.fill_mode = 4;
    for (uint32_t i = 0; i < 4; ++i) {
      if (mode == kModes[i]) p_.fill_mode = i;
    }
    OP_REQUIRES(ctx, p_.fill_mode < 4,
                InvalidArgument(kOp, ": Invalid mode ", mode,
                                ". Supported types: REFLECT, WRAP, CONSTANT, NEAREST"));
  }

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  Status Run(KernelContext* ctx) {
    Tensor images, transforms, output_shape, fill, out;
    Shape size;
    TransformParams p = p_;
    RETURN_IF_ERROR(ctx->Input(0, &images));
    RETURN_IF_ERROR(ctx->Input(1, &transforms));
    RETURN_IF_ERROR(ctx->Input(2, &output_shape));
    RETURN_IF_ERROR(CheckImage(kOp, "images", images.shape()));
    RETURN_IF_ERROR(HeightAndWidth(kOp, "output_shape", output_shape, &size));
    const bool one = transforms.rank() == 2 && transforms.dim(0) == 1;
    if (transforms.rank() != 2 || transforms.dim(1) != 8 ||
        (!one && transforms.dim(0) != images.dim(0))) {
      return InvalidArgument(kOp, ": Input transform should be num_images x 8 or 1 x 8, got ",
                             ToString(transforms.shape()), " for ", images.dim(0), " images");
    }
    if (Op::kFill) {
      RETURN_IF_ERROR(ctx->Input(3, &fill));
      if (fill.rank() != 0) {
        return InvalidArgument(kOp, ": fill_value must be a scalar, got shape ",
                               ToString(fill.shape()));
      }
      p.fill = *fill.template host<float>();
    }
    const Shape shape = Resized(images.shape(), size);
    RETURN_IF_ERROR(CheckImage(kOp, "output_shape", shape));
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    if (out.num_elements() == 0) return Status();
    if (images.num_elements() == 0) {
      return InvalidArgument(kOp, ": input image must be of non-zero size, got ",
                             ToString(images.shape()));
    }
    p.in_h = static_cast<uint32_t>(images.dim(1));
    p.in_w = static_cast<uint32_t>(images.dim(2));
    p.out_w = static_cast<uint32_t>(size[1]);
    p.channels = static_cast<uint32_t>(images.dim(3));
    p.one_transform = one ? 1 : 0;
    const bool many = ResizeLanes(shape[3]) == RESIZE_MANY_LANES;
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch(
          {ResizeShader("projective_transform", shape[3]), images.dtype()},
          many ? BlockGrid(shape) : ImageGrid(shape),
          {{"images", images}, {"transforms", transforms}, {"out", out}, {"p", p}});
    });
  }

  TransformParams p_ = {};
};
struct TransformV2 {
  static constexpr char kOp[] = "ImageProjectiveTransformV2";
  static constexpr bool kFill = false;
};
struct TransformV3 {
  static constexpr char kOp[] = "ImageProjectiveTransformV3";
  static constexpr bool kFill = true;
};
#define TRANSFORM                                                                 \
  .Types("dtype", {TF_FLOAT, TF_HALF, TF_BFLOAT16, TF_UINT8, TF_INT32, TF_INT64}) \
      .HostMemory("output_shape")
REGISTER_METAL_KERNEL(TransformOp<TransformV2>, TRANSFORM);
REGISTER_METAL_KERNEL(TransformOp<TransformV3>, TRANSFORM.HostMemory("fill_value"));

}  // namespace
}  // namespace metal_ops
