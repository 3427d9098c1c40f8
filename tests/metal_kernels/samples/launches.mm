// Launches: one op whose attribute chooses the shader's arguments, for
// tests/metal_kernels/test_launch.py.

#include <map>

#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/registrar.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

REGISTER_OP("Launches")
    .Input("x: float")
    .Attr("what: string")
    .Attr("library: string = ''")
    .Output("y: float")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

namespace {
using namespace metal_ops;

struct ScaleParams {
  uint32_t n;
  float scale;
};

class LaunchesOp {
 public:
  static constexpr char kOp[] = "Launches";
  explicit LaunchesOp(KernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("what", &what_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("library", &library_));
  }

  void Compute(KernelContext* ctx) {
    Tensor x, y, halves;
    OP_REQUIRES_OK(ctx, ctx->Input(0, &x));
    OP_REQUIRES_OK(ctx, ctx->AllocateOutput(0, x.shape(), &y));
    OP_REQUIRES_OK(ctx, ctx->AllocateTemp(TF_HALF, x.shape(), &halves));
    OP_REQUIRES_OK(ctx, Encode(ctx, [&](Encoder& encoder) { return Run(encoder, x, y, halves); }));
  }

 private:
  Status Run(Encoder& encoder, const Tensor& x, const Tensor& y, const Tensor& halves) const {
    const Grid grid(x.num_elements());
    const ScaleParams params = {static_cast<uint32_t>(x.num_elements()), 2.0f};
    const float one = 1.0f, some[] = {1.0f, 2.0f, 3.0f};
    const auto scale = [&](Arguments arguments) {
      return encoder.Launch({"scale", x.dtype()}, grid, arguments);
    };
    if (what_ == "right") return scale({{"x", x}, {"y", y}, {"params", params}});
    if (what_ == "another order") return scale({{"params", params}, {"y", y}, {"x", x}});
    if (what_ == "missing") return scale({{"x", x}, {"y", y}});
    if (what_ == "surplus") return scale({{"x", x}, {"y", y}, {"params", params}, {"z", x}});
    if (what_ == "misspelt") return scale({{"x", x}, {"y", y}, {"parms", params}});
    if (what_ == "twice") return scale({{"x", x}, {"y", y}, {"x", x}});
    if (what_ == "size") return scale({{"x", x}, {"y", y}, {"params", one}});
    if (what_ == "bytes to write")
      return scale({{"x", x}, {"y", HostArray(some, 3)}, {"params", params}});
    if (what_ == "dtype") return scale({{"x", halves}, {"y", y}, {"params", params}});
    if (what_ == "elements") {
      const uint16_t shorts[] = {1, 2, 3};
      return scale({{"x", HostArray(shorts, 3)}, {"y", y}, {"params", params}});
    }
    if (what_ == "shader") return encoder.Launch("scale_flaot", grid, {{"x", x}});
    if (what_ == "far shader") return encoder.Launch("something_else", grid, {{"x", x}});
    if (what_ == "long name") return encoder.Launch(std::string(200, 'a'), grid, {{"x", x}});
    if (what_ == "too many") {
      return scale(std::vector<Argument>(40, Argument{"x", x}));
    }
    if (what_ == "at run time") {
      // Names and number are known here alone.
      std::vector<std::string> names;
      for (int i = 4; i >= 0; --i) names.push_back("a" + std::to_string(i));
      const uint32_t n = params.n;
      std::vector<Argument> arguments = {{"n", n}, {"total", y}};
      for (const std::string& name : names) arguments.push_back({name.c_str(), x});
      return encoder.Launch("sum_of_many", grid, arguments);
    }
    if (what_ == "constants") {
      return encoder.Launch(Shader("times").Constant(0, 3.0f), grid, {{"x", x}, {"y", y}});
    }
    if (what_ == "another constant") {
      return encoder.Launch(Shader("times").Constant(0, 5.0f), grid, {{"x", x}, {"y", y}});
    }
    if (what_ == "library") {
      const ShaderLibrary* library = nullptr;
      RETURN_IF_ERROR(OpenLibrary(library_, &library));
      return encoder.Launch(Shader("scale", x.dtype()).In(library), grid,
                            {{"x", x}, {"y", y}, {"params", params}});
    }
    return InvalidArgument("Launches: what: '", what_, "' is no case");
  }

  std::string what_, library_;
};
REGISTER_METAL_KERNEL(LaunchesOp);

}  // namespace
