// Lgamma, Digamma, Xlog1py, Igamma, Igammac, IgammaGradA, RandomGammaGrad, Zeta, Polygamma, Betainc, Erfinv, Ndtri.

#include "device/kernels/elementwise.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

// The functions in these gradients.
ELEMENTWISE_OP(UnaryOp, Lgamma, "lgamma", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(UnaryOp, Digamma, "digamma", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, Xlog1py, "xlog1py", METAL_DEVICE_FLOATS);
ELEMENTWISE_OP(BinaryOp, Zeta, "zeta", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Igamma, "igamma", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Igammac, "igammac", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, IgammaGradA, "igamma_grad_a", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, RandomGammaGrad, "random_gamma_grad", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Polygamma, "polygamma", {TF_FLOAT});
ELEMENTWISE_OP(UnaryOp, Erfinv, "erfinv", {TF_FLOAT});
ELEMENTWISE_OP(UnaryOp, Ndtri, "ndtri", {TF_FLOAT});

// All of one shape, except for those that are single values.
class BetaincOp {
 public:
  static constexpr char kOp[] = "Betainc";

  explicit BetaincOp(KernelConstruction*) {}

  void Compute(KernelContext* ctx) { OP_REQUIRES_OK(ctx, Run(ctx)); }

 private:
  static Status Run(KernelContext* ctx) {
    Tensor in[3], out;
    Shape shape;
    for (int i = 0; i < 3; ++i) {
      RETURN_IF_ERROR(ctx->Input(i, &in[i]));
      if (in[i].rank() != 0) shape = in[i].shape();
    }
    uint32_t steps[3];
    for (int i = 0; i < 3; ++i) {
      steps[i] = in[i].rank() == 0 ? 0 : 1;
      if (in[i].rank() == 0 || in[i].shape() == shape) continue;
      return InvalidArgument(kOp, ": a, b and x must have one shape or be scalars, got ",
                             ToString(in[0].shape()), ", ", ToString(in[1].shape()), " and ",
                             ToString(in[2].shape()));
    }
    RETURN_IF_ERROR(ctx->AllocateOutput(0, shape, &out));
    RETURN_IF_ERROR(CheckGrid(kOp, "elements", out.num_elements()));
    return Encode(ctx, [&](Encoder& encoder) {
      return encoder.Launch("betainc", Grid(out.num_elements()),
                            {{"a_values", in[0]},
                             {"b_values", in[1]},
                             {"x_values", in[2]},
                             {"out", out},
                             {"steps", HostArray(steps, 3)}});
    });
  }
};
REGISTER_METAL_KERNEL(BetaincOp, .Types("T", {TF_FLOAT}));

}  // namespace
}  // namespace metal_ops
