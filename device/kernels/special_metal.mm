// Igamma, Igammac, Zeta, Polygamma.

#include "device/kernels/elementwise.h"
#include "kernels/tensorflow/registrar.h"

namespace metal_ops {
namespace {

ELEMENTWISE_OP(BinaryOp, Zeta, "zeta", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Igamma, "igamma", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Igammac, "igammac", {TF_FLOAT});
ELEMENTWISE_OP(BinaryOp, Polygamma, "polygamma", {TF_FLOAT});

}  // namespace
}  // namespace metal_ops
