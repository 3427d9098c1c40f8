// Expression: weights of 4 or 8 bits that are turned into floats for one product.

#include "absl/strings/str_cat.h"
#include "graph/expression.h"

namespace metal_ops::fusion {
namespace {

using absl::StrCat;
using tensorflow::DataType;

constexpr PatternInfo kInfo = {
    "quantized_matmul",
    Stage::kExpression,
    "MetalDequantize,MetalLookupWeights,Cast",
    "A MatMul whose second operand is metal_ops.dequantize, of 4 or 8 bits and in blocks or not, "
    "or of lookup tables; or is (codes - 128) * scale or codes * scale + minimum, of uint8 codes "
    "[outputs, inputs] and one scale an output, [outputs, 1], or for all, [1, 1]. The weights are "
    "turned round once, by a Transpose or transpose_b, and nothing else reads them; a bias or an "
    "activation behind the product stays an op.",
    R"(
   codes   scales   minima
      \      |      /
  MetalDequantize | MetalLookupWeights | Cast, Sub, Mul | Cast, Mul, AddV2
             |
    x    [Transpose]
     \      /
      MatMul
)",
    R"(
  x   codes   scales   minima
   \    |       |      /
  fused: MetalQuantizedMatMul | MetalLookupMatMul
)"};

Expression ProductWith(const Expression& weights) {
  return AnyOf({Op("MatMul", Any("x"), Op("Transpose", weights, Any("perm"))),
                Op("MatMul", Any("x"), weights)});
}

// Rows of codes are outputs: the op takes them where the product takes them turned round.
Refusal CheckProduct(const Facts& facts, const Region& region, int64_t inputs) {
  const NodeView& product = *region.nodes.back();
  if (BoolAttr(product, "transpose_a", false)) {
    return {"quantized_layout", StrCat(Quoted(product), " turns its first operand round.")};
  }
  bool turned = BoolAttr(product, "transpose_b", false);
  if (region.Has("perm")) {
    if (facts.Ints(region.bound.at("perm")) != std::vector<int64_t>{1, 0}) {
      return {"quantized_layout",
              StrCat(Quoted(*region.bound.at("perm").node), " is not the constant [1, 0].")};
    }
    turned = !turned;
  }
  if (!turned) {
    return {"quantized_layout",
            StrCat(Quoted(product),
                   " takes rows of codes as its inputs, expected as its outputs: "
                   "turned round, by a Transpose or transpose_b.")};
  }
  const Shape x = facts.ShapeOf(region.bound.at("x"));
  if (x.rank() != 2 || inputs < 0 || x.dims[1] != inputs) {
    return {"quantized_shape",
            StrCat(Quoted(product), " multiplies ", x.ToString(), " with rows of ",
                   inputs < 0 ? "?" : StrCat(inputs),
                   " codes: they are not provably as many as there are columns.")};
  }
  return {};
}

// The op has scales of float or half.
Refusal CheckScales(const Value& scales, DataType type) {
  if (type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF) return {};
  return {"dtype", StrCat("The scales ", Quoted(*scales.node), " are of ",
                          tensorflow::DataTypeString(type), ", expected float or half.")};
}

// The codes' types, and the tensors beside them: "block" or, of lookup tables, "group".
struct Codes {
  const char* op;
  DataType type, values;
  int64_t inputs, bits;
  const char* shared;
  int64_t sharing;
};

void Become(Chain* chain, const Region& region, const Codes& of, std::vector<std::string> weights) {
  chain->Start(of.op, of.type, /*nchw=*/false, -1);
  auto& attrs = *chain->node()->mutable_attr();
  attrs["S"].set_type(of.values);
  attrs["bits"].set_i(of.bits);
  attrs[of.shared].set_i(of.sharing);
  std::string x = InputName(region.bound.at("x"));
  if (of.bits < 8) {
    // The product's own check may be all that says how many columns there are, and 69 codes have
    // as many bytes as 70.
    x = chain->AddHelper("EnsureShape", "x", {x}, {{"T", of.type}});
    tensorflow::TensorShapeProto* shape =
        (*chain->helper()->mutable_attr())["shape"].mutable_shape();
    shape->add_dim()->set_size(-1);
    shape->add_dim()->set_size(of.inputs);
  }
  weights.insert(weights.begin(), x);
  chain->SetInputs(std::move(weights));
  chain->Append(Stage::kExpression,
                chain->root().GetOp() == "MetalLookupWeights" ? "LookupWeights" : "Dequantize");
  chain->Append(Stage::kExpression, "MatMul");
}

Outcome FromOp(Chain* chain) {
  const NodeView& dequantize = chain->root();
  const Facts& facts = chain->facts();
  static const auto* product = new Expression(ProductWith(X()));
  for (Region region : FindExpression(facts, dequantize, {&dequantize, 0},
                                      {"Transpose", "MatMul", "Identity"}, *product)) {
    const auto number = [&](const char* name) {
      const auto* attr = dequantize.GetAttr(name);
      return attr != nullptr ? attr->i() : -1;
    };
    if (Refusal refusal = CheckProduct(facts, region, number("inputs")); !refusal.empty()) {
      return Refused(refusal);
    }
    region.nodes.insert(region.nodes.begin(), &dequantize);
    if (Refusal refusal = chain->AbsorbAll(region.nodes); !refusal.empty()) return Refused(refusal);
    const bool tables = dequantize.GetOp() == "MetalLookupWeights";
    const char* const shared = tables ? "group" : "block";
    std::vector<std::string> weights;
    for (int i = 0; i < dequantize.NumRegularFanins(); ++i) {
      weights.push_back(InputName(facts.Input(dequantize, i)));
    }
    Become(chain, region,
           {tables ? "MetalLookupMatMul" : "MetalQuantizedMatMul", TypeAttr(dequantize, "T"),
            TypeAttr(dequantize, "S"), number("inputs"), number("bits"), shared, number(shared)},
           weights);
    return Matched();
  }
  return NotMine();
}

// An offset other than 128 is a zero point, which the op does not have.
Refusal CheckZero(const Facts& facts, const Region& region) {
  if (!region.Has("zero")) return {};
  const Value zero = region.bound.at("zero");
  if (facts.Scalar(zero) == 128.0) return {};
  return {"quantized_zero", StrCat(Quoted(*zero.node),
                                   " is taken off the codes, expected the "
                                   "constant 128; another zero can be written "
                                   "as a minimum: codes * scale + minimum.")};
}

Outcome FromElements(Chain* chain) {
  const NodeView& cast = chain->root();
  const Facts& facts = chain->facts();
  static const auto* products = new Expression([] {
    const Expression codes = Op("Cast", X()), scales = Any("scales");
    return AnyOf({ProductWith(Op("Mul", Op("Sub", codes, Any("zero")), scales)),
                  ProductWith(Op("AddV2", Op("Mul", codes, scales), Any("minima")))});
  }());
  const Value codes = facts.Input(cast, 0);
  for (const Region& region : FindExpression(
           facts, cast, codes, {"Sub", "Mul", "AddV2", "Add", "Transpose", "MatMul", "Identity"},
           *products)) {
    const DataType type = TypeAttr(cast, "DstT");
    if (Refusal refusal = CheckType(cast, type); !refusal.empty()) return Refused(refusal);
    const Value scales = region.bound.at("scales");
    if (Refusal refusal = CheckScales(scales, type); !refusal.empty()) return Refused(refusal);
    if (Refusal refusal = CheckZero(facts, region); !refusal.empty()) return Refused(refusal);
    const Shape rows = facts.ShapeOf(codes), of_scales = facts.ShapeOf(scales);
    const bool fits = rows.rank() == 2 && of_scales.rank() == 2 && of_scales.dims[1] == 1 &&
                      (of_scales.dims[0] == 1 || SameDim(of_scales.dims[0], rows.dims[0]));
    if (!fits) {
      return Refused("quantized_scales",
                     StrCat("The scales ", Quoted(*scales.node), " are ", of_scales.ToString(),
                            " beside codes of ", rows.ToString(),
                            ", expected [outputs, 1] or [1, 1] beside [outputs, inputs]."));
    }
    if (region.Has("minima")) {
      const Value minima = region.bound.at("minima");
      if (!SameShape(facts.ShapeOf(minima), of_scales)) {
        return Refused("quantized_scales", StrCat("The minima ", Quoted(*minima.node), " are ",
                                                  facts.ShapeOf(minima).ToString(), ", expected ",
                                                  of_scales.ToString(), " as the scales."));
      }
    }
    if (Refusal refusal = CheckProduct(facts, region, rows.dims[1]); !refusal.empty()) {
      return Refused(refusal);
    }
    if (Refusal refusal = chain->AbsorbAll(region.nodes); !refusal.empty()) return Refused(refusal);
    const std::string minima = region.Has("minima") ? InputName(region.bound.at("minima"))
                                                    : chain->AddFloats("minima", 0, 0, type, codes);
    Become(chain, region, {"MetalQuantizedMatMul", type, type, rows.dims[1], 8, "block", 0},
           {InputName(codes), InputName(scales), minima});
    return Matched();
  }
  return NotMine();
}

Outcome Match(Chain* chain) {
  const NodeView& root = chain->root();
  if (root.GetOp() == "MetalDequantize" || root.GetOp() == "MetalLookupWeights") {
    return FromOp(chain);
  }
  const bool of_bytes = root.GetOp() == "Cast" && TypeAttr(root, "SrcT") == tensorflow::DT_UINT8;
  return of_bytes ? FromElements(chain) : NotMine();
}

REGISTER_FUSION(kInfo, Match);

}  // namespace
}  // namespace metal_ops::fusion
