// TensorFlow's shapes as ArgShape, in shape functions and CPU kernels, and back.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_TF_ARG_SHAPES_H_
#define METAL_OPS_KERNELS_TENSORFLOW_TF_ARG_SHAPES_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "kernels/runtime/arg_shapes.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace metal_ops {

inline ArgShape ToArgShape(const tensorflow::TensorShape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.dims(); ++i) dims.push_back(shape.dim_size(i));
  return ArgShape(std::move(dims));
}

inline ArgShape ToArgShape(tensorflow::shape_inference::InferenceContext* c,
                           tensorflow::shape_inference::ShapeHandle shape) {
  if (!c->RankKnown(shape)) return ArgShape();
  std::vector<int64_t> dims;
  for (int i = 0; i < c->Rank(shape); ++i) dims.push_back(c->Value(c->Dim(shape, i)));
  return ArgShape(std::move(dims));
}

inline ArgShape ToArgShape(tensorflow::shape_inference::InferenceContext* c, int input) {
  return ToArgShape(c, c->input(input));
}

// Shapes of all inputs, in order.
template <typename Context>
std::vector<ArgShape> InputShapes(Context* context) {
  std::vector<ArgShape> shapes;
  for (int i = 0; i < context->num_inputs(); ++i) {
    if constexpr (std::is_same_v<Context, tensorflow::shape_inference::InferenceContext>) {
      shapes.push_back(ToArgShape(context, i));
    } else {
      shapes.push_back(ToArgShape(context->input(i).shape()));
    }
  }
  return shapes;
}

inline absl::Status ToStatus(const ArgShapes& shapes) {
  if (shapes.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(shapes.error());
}

// An output of the named sizes, where they are known.
inline tensorflow::shape_inference::ShapeHandle ToShape(
    tensorflow::shape_inference::InferenceContext* c, const std::vector<int64_t>& dims) {
  std::vector<tensorflow::shape_inference::DimensionHandle> handles;
  for (const int64_t dim : dims) handles.push_back(dim < 0 ? c->UnknownDim() : c->MakeDim(dim));
  return c->MakeShape(handles);
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_TF_ARG_SHAPES_H_
