// ScaledDotProductAttention and its gradients.

#include <string>

#include "kernels/attention/attention_params.h"
#include "kernels/runtime/gradient.h"
#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

bool IsHeadSize(int64_t size) { return size >= 1 && size <= ATTENTION_MOST_SIZE; }

// [batch, heads, queries, keys], each of them or 1; [0] where the call has none.
void CheckBroadcast(OpCall& call, const char* arg, bool used) {
  const ArgShape& shape = call.in_shapes[call.Index(arg)];
  if (!used) {
    call.shapes.Expect(arg, shape, {"0"},
                       std::string("The call is one without: use_") + arg + " is false.");
    return;
  }
  if (!shape.known_rank) return;
  const char* const dims[] = {"batch", "heads", "queries", "keys"};
  bool fits = shape.rank() == 4;
  std::string full;
  for (int i = 0; i < 4; ++i) {
    const int64_t size = call.Size(dims[i]);
    full += (i > 0 ? ", " : "") + (size < 0 ? std::string(dims[i]) : std::to_string(size));
    if (fits && shape.dims[i] >= 0 && shape.dims[i] != 1) fits = size < 0 || shape.dims[i] == size;
  }
  call.shapes.Require(fits,
                      std::string(arg) + " must have shape [" + full +
                          "] (batch, heads, queries, keys), or 1 in place of any of them, got " +
                          ToText(shape) + ".");
}

void CheckCall(OpCall& call) {
  const int64_t heads = call.Size("heads"), kv_heads = call.Size("kv_heads");
  if (heads >= 0 && kv_heads >= 0) {
    const bool fits = kv_heads == 0 ? heads == 0 : heads % kv_heads == 0;
    call.shapes.Require(fits, "q must have a multiple of the heads of k, " +
                                  std::to_string(kv_heads) + ", got " + std::to_string(heads) +
                                  ".");
  }
  for (const char* dim : {"queries", "keys"}) {
    call.shapes.Require(call.Size(dim) < int64_t{1} << 31,
                        std::string("there must be less than 2^31 ") + dim + ", got " +
                            std::to_string(call.Size(dim)) + ".");
  }
  if (heads >= 0 && call.Size("batch") >= 0) {
    call.shapes.Require(call.Size("batch") * heads < int64_t{1} << 32,
                        "there must be less than 2^32 heads of all batches.");
  }
  CheckBroadcast(call, "mask", call.Bool("use_mask"));
  CheckBroadcast(call, "bias", call.Bool("use_bias"));
  const ArgShape& lengths = call.in_shapes[call.Index("key_lengths")];
  if (lengths.rank() == 1 && lengths.dims[0] == 0) return;
  call.shapes.Expect("key_lengths", lengths, {"batch"}, "[0] stands for none.");
}

void CheckBiasGrad(OpCall& call) {
  call.shapes.Require(call.Bool("use_bias"), "use_bias must be true: there is no other gradient.");
  CheckCall(call);
}

void CheckRate(OpCall& call) {
  const float rate = call.Float("dropout");
  call.shapes.Require(rate >= 0 && rate < 1,
                      "dropout must be in [0, 1), got " + ToText(rate) + ".");
}

void Attrs(OpBuilder& op) {
  op.Attr("T: {float, half, bfloat16} = DT_FLOAT")
      .Attr("scale: float = 0.0", "Factor of the products; 0 stands for 1 / sqrt(size).")
      .Attr("soft_cap: float = 0.0", "c of c tanh(score / c), before mask and bias. 0: none.",
            AtLeast(0))
      .Attr("window_left: int = -1", "Keys before its own that a query sees. -1: all.", AtLeast(-1))
      .Attr("window_right: int = -1", "Keys behind its own. 0 is causal attention, -1: all.",
            AtLeast(-1))
      .Attr("dropout: float = 0.0", "Part of the weights that are dropped, in [0, 1).")
      .Attr("use_mask: bool = false", "Whether there is a mask.")
      .Attr("use_bias: bool = false", "Whether there is a bias.")
      .CheckAttrs(CheckRate);
}

void Inputs(OpBuilder& op) {
  op.Input("q: T", "[batch, heads, queries, size]",
           "Queries, [batch, heads, queries, size] with a size of 1 to 256.")
      .Input(
          "k: T", "[batch, kv_heads, keys, size]",
          "Keys, [batch, kv_heads, keys, size]. kv_heads divides heads; neighbouring heads share.")
      .Input("v: T", "[batch, kv_heads, keys, value_size]",
             "Values, [batch, kv_heads, keys, value_size] with a size of 1 to 256.")
      .Input("mask: bool", "any",
             "Which keys a query sees, [batch, heads, queries, keys] or 1 for any of these; [0].")
      .Input("bias: T", "any", "The addend of the scores, of such a shape; [0].")
      .Input("key_lengths: int32", "any",
             "How many keys each sequence has, [batch], or [0] for all. Less than 0 is 0, and more "
             "than there are is all.")
      .Input("seed: int32", "[2]", "Seed of the dropped weights.")
      .Sizes("size", "1 to 256", IsHeadSize)
      .Sizes("value_size", "1 to 256", IsHeadSize);
}

// The values that the forward pass has saved.
void Saved(OpBuilder& op) {
  op.Input("outputs: T", "[batch, heads, queries, value_size]",
           "As ScaledDotProductAttention gave it.")
      .Input("log_sum_exp: float", "[batch, heads, queries]", "The same.")
      .Input("gradients: T", "[batch, heads, queries, value_size]",
             "Gradient of the loss with respect to the outputs.");
}

DECLARE_OP("ScaledDotProductAttention")
    .Doc(R"doc(
Attention: softmax(scale q k^T + bias) v, block after block, without the matrix of scores.

Query i's own key is i + keys - queries: the last query's is the last key (of its sequence, where key_lengths are given).
Scores, weights and sums are float32. A query that sees no key gives 0. Dao 2023, "FlashAttention-2", algorithm 1.)doc")
    .With(Attrs)
    .With(Inputs)
    .Output("outputs: T", "[batch, heads, queries, value_size]",
            "[batch, heads, queries, value_size].")
    .Output(
        "log_sum_exp: float", "[batch, heads, queries]",
        "log(sum(exp())) of each query's scores, -infinity if it sees no key. Not differentiable.")
    .Check(CheckCall);

DECLARE_OP("ScaledDotProductAttentionGrad")
    .Doc(R"doc(
The gradient of ScaledDotProductAttention with respect to q, k and v.

The weights are computed again from the scores and their log-sum-exp. Deterministic.)doc")
    .With(Attrs)
    .With(Inputs)
    .With(Saved)
    .Output("d_q: T", "like q", "Shaped like q; so the next two.")
    .Output("d_k: T", "like k")
    .Output("d_v: T", "like v")
    .Check(CheckCall)
    .NotDifferentiable();

DECLARE_OP("ScaledDotProductAttentionBiasGrad")
    .Doc("The gradient of ScaledDotProductAttention with respect to its bias. Deterministic.")
    .With(Attrs)
    .With(Inputs)
    .With(Saved)
    .Output("d_bias: T", "like bias", "Shaped like the bias, summed over what it is broadcast to.")
    .Check(CheckBiasGrad)
    .NotDifferentiable();

DECLARE_GRADIENT("ScaledDotProductAttention",
                 "q, k, v = ScaledDotProductAttentionGrad(q, k, v, mask, bias, key_lengths, seed, "
                 "outputs, log_sum_exp, d outputs)",
                 "bias = ScaledDotProductAttentionBiasGrad(q, k, v, mask, bias, key_lengths, seed, "
                 "outputs, log_sum_exp, d outputs) if use_bias");

}  // namespace
}  // namespace metal_ops
