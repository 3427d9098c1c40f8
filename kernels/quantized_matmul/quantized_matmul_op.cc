// Products with weights that are codes of 4 or 8 bits, or indices into lookup tables, and the values
// of the codes.

#include <string>

#include "kernels/quantized_matmul/quantized_matmul_params.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

void CheckQuantizedAttrs(OpCall& call) {
  const int64_t bits = call.Int("bits"), block = call.Int("block");
  call.shapes.Require(bits == 4 || bits == 8,
                      "bits must be 4 or 8, got " + std::to_string(bits) + ".");
  call.shapes.Require(block >= 0 && block % QUANTIZED_UNIT == 0,
                      "block must be 0, for all of a row, or a multiple of " +
                          std::to_string(QUANTIZED_UNIT) + ", got " + std::to_string(block) + ".");
}

// `first`: where codes are among the inputs.
void CheckWeights(OpCall& call, int64_t inputs, int first) {
  const ArgShape &codes = call.in_shapes[first], &scales = call.in_shapes[first + 1],
                 &minima = call.in_shapes[first + 2];
  const int64_t bits = call.Int("bits"), block = call.Int("block");
  if (inputs < 0) return;
  const auto number = [](int64_t n) { return std::to_string(n); };
  const std::string of = " of " + number(inputs) + " codes of " + number(bits) + " bits";
  const int64_t bytes = (inputs * bits + 7) / 8;
  if (codes.rank() == 2 && codes.dims[1] >= 0) {
    call.shapes.Require(codes.dims[1] == bytes, "a row" + of + " has " + number(bytes) +
                                                    " bytes, got codes of " +
                                                    number(codes.dims[1]) + ".");
  }
  const int64_t groups = inputs == 0 ? 0 : block == 0 ? 1 : (inputs + block - 1) / block;
  if (scales.rank() != 2) return;
  if (scales.dims[1] >= 0) {
    call.shapes.Require(scales.dims[1] == groups, "a row" + of + " in blocks of " +
                                                      number(block == 0 ? inputs : block) +
                                                      " has " + number(groups) + " scales, got " +
                                                      number(scales.dims[1]) + ".");
  }
  if (scales.dims[0] >= 0 && codes.rank() == 2 && codes.dims[0] >= 0) {
    call.shapes.Require(scales.dims[0] == codes.dims[0] || scales.dims[0] == 1,
                        "scales must have a row for each of the " + number(codes.dims[0]) +
                            " rows of codes, or one for all, got " + number(scales.dims[0]) + ".");
  }
  if (!minima.known_rank || (minima.rank() == 1 && minima.dims[0] == 0)) return;
  call.shapes.Expect("minima", minima, {"scale_rows", "groups"}, "[0] stands for none.");
}

void CheckProduct(OpCall& call) { CheckWeights(call, call.Size("inputs"), 1); }

void CheckDequantize(OpCall& call) {
  const int64_t inputs = call.Int("inputs");
  CheckWeights(call, inputs, 0);
  ArgShape weights = call.in_shapes[0];
  if (weights.rank() == 2) weights.dims[1] = inputs;
  call.out_shapes[0] = weights;
}

void Attrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("S: {float, half} = DT_HALF")
      .Attr("bits: int = 4", "Bits of a code: 4 or 8.")
      .Attr("block: int = 32",
            "Neighbouring codes of a row that share a scale, a multiple of 32; 0: all of a row.");
}

void Weights(OpBuilder& op) {
  op.Input("codes: uint8", "[outputs, bytes]",
           "Rows of codes, [outputs, ceil(inputs bits / 8)], the first of a byte in its low bits.")
      .Input("scales: S", "[scale_rows, groups]",
             "One a block, [outputs, ceil(inputs / block)]; [1, ...]: all rows have the same.")
      .Input("minima: S", "any",
             "The values of code 0, like scales; [0] for codes around 2^(bits - 1), which is 0.");
}

DECLARE_OP("MetalQuantizedMatMul")
    .Doc(R"doc(
Products with quantized weights, which are unpacked as they are multiplied: y = x w^T, w = scale code + minimum.

Weights and sums are in float32 whatever T, and y is rounded once. Differentiable with respect to x.)doc")
    .With(Attrs)
    .Input("x: T", "[rows, inputs]", "[rows, inputs].")
    .With(Weights)
    .Output("y: T", "[rows, outputs]", "[rows, outputs].")
    .CheckAttrs(CheckQuantizedAttrs)
    .Check(CheckProduct);

DECLARE_OP("MetalDynamicMatMul")
    .Doc(R"doc(
Products with quantized weights of x that is rounded to 8 bits, each row to steps of max |x| / 127.

Products of integers are summed in 32 bits up to a block's end, those sums in float32, and y is rounded once. A row
that is not finite gives NaN. Differentiable with respect to x, as if that was not rounded.)doc")
    .With(Attrs)
    .Input("x: T", "[rows, inputs]", "[rows, inputs].")
    .With(Weights)
    .Output("y: T", "[rows, outputs]", "[rows, outputs].")
    .CheckAttrs(CheckQuantizedAttrs)
    .Check(CheckProduct);

DECLARE_OP("MetalDequantize")
    .Doc("The values of quantized weights: scale code + minimum, rounded once.")
    .With(Attrs)
    .Attr("inputs: int", "Codes of a row.", AtLeast(0))
    .With(Weights)
    .Output("weights: T", "any", "[outputs, inputs].")
    .CheckAttrs(CheckQuantizedAttrs)
    .Check(CheckDequantize)
    .NotDifferentiable();

// ---- lookup tables ------------------------------------------------------------------------------

std::string Number(int64_t n) { return std::to_string(n); }

void CheckLookupAttrs(OpCall& call) {
  const int64_t bits = call.Int("bits");
  call.shapes.Require(bits == 2 || bits == 3 || bits == 4 || bits == 6 || bits == 8,
                      "bits must be 2, 3, 4, 6 or 8, got " + Number(bits) + ".");
}

// `first`: where codes are among the inputs.
void CheckTables(OpCall& call, int64_t inputs, int first) {
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

void CheckLookupProduct(OpCall& call) { CheckTables(call, call.Size("inputs"), 1); }

void CheckLookup(OpCall& call) {
  const int64_t inputs = call.Int("inputs");
  CheckTables(call, inputs, 0);
  ArgShape weights = call.in_shapes[0];
  if (weights.rank() == 2) weights.dims[1] = inputs;
  call.out_shapes[0] = weights;
}

void LookupAttrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("S: {float, half} = DT_HALF")
      .Attr("bits: int = 4", "Bits of a code: 2, 3, 4, 6 or 8.")
      .Attr("group: int = 16", "Neighbouring rows of codes that share a table; 0: all.",
            AtLeast(0));
}

void TablesAndCodes(OpBuilder& op) {
  op.Input(
        "codes: uint8", "[outputs, bytes]",
        "Rows of codes, [outputs, ceil(inputs bits / 8)], one behind the other from a byte's low "
        "bits on.")
      .Input("tables: S", "[tables, values]",
             "The values of codes, [ceil(outputs / group), 2^bits].");
}

DECLARE_OP("MetalLookupMatMul")
    .Doc(R"doc(
Products with weights from lookup tables, which are looked up as they are multiplied: y = x w^T, w = table[code].

Weights and sums are in float32 whatever T, and y is rounded once. Differentiable with respect to x.)doc")
    .With(LookupAttrs)
    .Input("x: T", "[rows, inputs]", "[rows, inputs].")
    .With(TablesAndCodes)
    .Output("y: T", "[rows, outputs]", "[rows, outputs].")
    .CheckAttrs(CheckLookupAttrs)
    .Check(CheckLookupProduct);

DECLARE_OP("MetalLookupWeights")
    .Doc("The values of codes in their rows' tables: table[code], rounded once.")
    .With(LookupAttrs)
    .Attr("inputs: int", "Codes of a row.", AtLeast(0))
    .With(TablesAndCodes)
    .Output("weights: T", "any", "[outputs, inputs].")
    .CheckAttrs(CheckLookupAttrs)
    .Check(CheckLookup)
    .NotDifferentiable();

DECLARE_GRADIENT(
    "MetalQuantizedMatMul",
    "x = MatMul(d y, MetalDequantize(codes, scales, minima; inputs=size inputs, T=type x))");
DECLARE_GRADIENT(
    "MetalDynamicMatMul",
    "x = MatMul(d y, MetalDequantize(codes, scales, minima; inputs=size inputs, T=type x))");
DECLARE_GRADIENT(
    "MetalLookupMatMul",
    "x = MatMul(d y, MetalLookupWeights(codes, tables; inputs=size inputs, T=type x))");

}  // namespace
}  // namespace metal_ops
