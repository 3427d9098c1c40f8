// Products with weights that are codes into tables, and what the codes stand for.

#include <string>

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

std::string Number(int64_t n) { return std::to_string(n); }

void CheckLookupAttrs(OpCall& call) {
  const int64_t bits = call.Int("bits");
  call.shapes.Require(bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8,
                      "bits must be 2, 3, 4, 6 or 8, got " + Number(bits) + ".");
}

// `first`: where codes are among the inputs.
void CheckWeights(OpCall& call, int64_t inputs, int first) {
  const ArgShape &codes = call.in_shapes[first], &tables = call.in_shapes[first + 1];
  const int64_t bits = call.Int("bits"), group = call.Int("group"), values = int64_t{1} << bits;
  if (tables.rank() == 2 && tables.dims[1] >= 0) {
    call.shapes.Require(tables.dims[1] == values,
                        "a table for codes of " + Number(bits) + " bits has " + Number(values) +
                            " values, got " + Number(tables.dims[1]) + ".");
  }
  if (codes.rank() != 2) return;
  if (inputs >= 0 && codes.dims[1] >= 0) {
    const int64_t bytes = (inputs * bits + 7) / 8;
    call.shapes.Require(codes.dims[1] == bytes,
                        "a row of " + Number(inputs) + " codes of " + Number(bits) + " bits has " +
                            Number(bytes) + " bytes, got codes of " + Number(codes.dims[1]) + ".");
  }
  if (tables.rank() == 2 && tables.dims[0] >= 0 && codes.dims[0] >= 0) {
    const int64_t outputs = codes.dims[0];
    const int64_t n = outputs == 0 ? 0 : group == 0 ? 1 : (outputs + group - 1) / group;
    call.shapes.Require(tables.dims[0] == n,
                        Number(outputs) + " rows of codes, " +
                            (group == 0 ? "all with one table," : Number(group) + " to a table,") +
                            " have " + Number(n) + " tables, got " + Number(tables.dims[0]) + ".");
  }
}

void CheckProduct(OpCall& call) { CheckWeights(call, call.Size("inputs"), 1); }

void CheckLookup(OpCall& call) {
  const int64_t inputs = call.Int("inputs");
  CheckWeights(call, inputs, 0);
  ArgShape weights = call.in_shapes[0];
  if (weights.rank() == 2) weights.dims[1] = inputs;
  call.out_shapes[0] = weights;
}

void Attrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("S: {float, half} = DT_HALF")
      .Attr("bits: int = 4", "Of a code: 2, 3, 4, 6 or 8.")
      .Attr("group: int = 16", "Neighbouring rows of codes that share a table; 0: all.",
            AtLeast(0));
}

void Weights(OpBuilder& op) {
  op.Input(
        "codes: uint8", "[outputs, bytes]",
        "Rows of codes, [outputs, ceil(inputs bits / 8)], one behind the other from a byte's low "
        "bits on.")
      .Input("tables: S", "[tables, values]",
             "What codes stand for, [ceil(outputs / group), 2^bits].");
}

DECLARE_OP("MetalLookupMatMul")
    .Doc(R"doc(
Products with weights from lookup tables, which are looked up as they are multiplied: y = x w^T, w = table[code].

Weights and sums are in float32 whatever T, and y is rounded once. Differentiable with respect to x.)doc")
    .With(Attrs)
    .Input("x: T", "[rows, inputs]", "[rows, inputs].")
    .With(Weights)
    .Output("y: T", "[rows, outputs]", "[rows, outputs].")
    .CheckAttrs(CheckLookupAttrs)
    .Check(CheckProduct);

DECLARE_OP("MetalLookupWeights")
    .Doc("What codes stand for in their rows' tables: table[code], rounded once.")
    .With(Attrs)
    .Attr("inputs: int", "Codes of a row.", AtLeast(0))
    .With(Weights)
    .Output("weights: T", "any", "[outputs, inputs].")
    .CheckAttrs(CheckLookupAttrs)
    .Check(CheckLookup)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
