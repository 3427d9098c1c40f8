// HammingDistance: how many bits, or bytes, of two rows differ.

#include <string>

#include "kernels/hamming_distance/hamming_distance_call.h"

namespace metal_ops {
namespace {

void Check(OpCall& call) {
  const ArgShape &a = call.in_shapes[0], &b = call.in_shapes[1];
  if (!a.known_rank || !b.known_rank) return;
  const std::string got = ToText(a) + " and " + ToText(b) + ".";
  call.shapes.Require(
      a.rank() >= 1 && b.rank() >= 1,
      "a and b must have a last dimension, whose elements are compared, got " + got);
  if (!call.shapes.ok()) return;
  const int64_t a_last = a.dims.back(), b_last = b.dims.back();
  call.shapes.Require(a_last < 0 || b_last < 0 || a_last == b_last,
                      "a and b must have the same last dimension, got " + got);
  const size_t rank = static_cast<size_t>(std::max(a.rank(), b.rank()));
  std::vector<int64_t> batch(rank - 1);
  bool known = a_last >= 0 && b_last >= 0;
  for (size_t i = 2; i <= rank; ++i) {
    const int64_t a_size = i <= a.dims.size() ? a.dims[a.dims.size() - i] : 1;
    const int64_t b_size = i <= b.dims.size() ? b.dims[b.dims.size() - i] : 1;
    call.shapes.Require(a_size < 0 || b_size < 0 || a_size == b_size || a_size == 1 || b_size == 1,
                        "the dimensions before the last must be equal or 1, got " + got);
    known = known && a_size >= 0 && b_size >= 0;
    // One that is not known may be 1, or the other's if that is not 1.
    const int64_t other = a_size == 1 ? b_size : a_size;
    batch[rank - i] = a_size > 1 || b_size > 1 ? std::max(a_size, b_size) : other;
    if (a_size < 0 && b_size == 1) batch[rank - i] = -1;
  }
  if (known && call.shapes.ok()) {
    const uint32_t n_dims = ToHammingParams(call).n_dims;
    call.shapes.Require(n_dims <= HAMMING_MOST_DIMS,
                        "at most " + std::to_string(HAMMING_MOST_DIMS) +
                            " dimensions can be broadcast in turns, got " + std::to_string(n_dims) +
                            ". Use tf.broadcast_to before.");
  }
  call.out_shapes[0] = ArgShape(batch);
}

void CheckElements(OpCall& call) {
  const size_t bytes = SizeOf(call.Type("T"));
  call.shapes.Require(!call.Bool("elements") || bytes == 1,
                      "elements that differ are counted in uint8 and bool, got a type of " +
                          std::to_string(bytes) + " bytes.");
}

DECLARE_OP("HammingDistance")
    .Doc("How many bits of two rows differ, or how many of their bytes.")
    .Attr("T: {uint8, uint16, uint32, uint64, bool}")
    .Attr("elements: bool = false",
          "Whether elements that differ are counted, of uint8 or bool, and not their bits.")
    .Input("a: T", "any", "[..., elements].")
    .Input("b: T", "any", "[..., elements]; the dimensions before the last are broadcast.")
    .Output("distances: int32", "any", "[...].")
    .CheckAttrs(CheckElements)
    .Check(Check)
    .NotDifferentiable();

}  // namespace
}  // namespace metal_ops
