// Outputs that are pieces of an input: see pieces.h.

#include "device/kernels/pieces.h"

#include <utility>

#include "device/kernels/host_int32.h"
#include "device/memory.h"
#include "kernels/runtime/encoder.h"
#include "kernels/tensorflow/part.h"

namespace metal_ops {
namespace {

// The alignment of a tensor for those who calculate with it: TensorFlow's own.
constexpr int64_t kAlignment = 64;

// Whether a walk takes elements as they follow each other.
bool IsRow(const Piece& piece) {
  const std::vector<int64_t> dense = DenseStrides(piece.along);
  for (size_t d = 0; d < dense.size(); ++d) {
    if (piece.along[d] != 1 && piece.from.strides[d] != dense[d]) return false;
  }
  return true;
}

Status Share(KernelContext* ctx, int input, const Tensor& in, int i, const Piece& piece,
             bool in_host_memory, bool* shared) {
  const int64_t n = NumElements(piece.along);
  const auto bytes = static_cast<int64_t>(in.element_bytes());
  const int64_t offset = piece.from.offset * bytes;
  *shared = n > 0 && offset % kAlignment == 0 && IsRow(piece);
  if (!*shared) return Status();
  if (n == in.num_elements()) return ctx->ShareInput(input, i, piece.shape);
  void* const address = in_host_memory
                            ? nullptr
                            : metal_device::NewPart(in.opaque(), static_cast<uint64_t>(offset),
                                                    static_cast<uint64_t>(n * bytes));
  *shared = address != nullptr;
  if (!*shared) return Status();
  return SetPartOutput(ctx, input, i, piece.shape, address, metal_device::AbandonPart);
}

}  // namespace

Status OutputPieces(KernelContext* ctx, const char* op, int input, const Tensor& in,
                    const std::vector<Piece>& pieces, bool in_host_memory) {
  std::vector<std::pair<const Piece*, Tensor>> copies;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const int i = static_cast<int>(k);
    bool shared = false;
    RETURN_IF_ERROR(Share(ctx, input, in, i, pieces[k], in_host_memory, &shared));
    if (shared) continue;
    copies.emplace_back(&pieces[k], Tensor());
    RETURN_IF_ERROR(ctx->AllocateOutput(i, pieces[k].shape, &copies.back().second));
  }
  if (copies.empty()) return Status();
  return MoveElements(ctx, op, in_host_memory, [&](auto& by) -> Status {
    for (const auto& [piece, out] : copies) {
      RETURN_IF_ERROR(by.Copy(piece->along, in, piece->from, out, {DenseStrides(piece->along)}));
    }
    return Status();
  });
}

}  // namespace metal_ops
