// Grouped convolutions: each group of the output's channels sees one group of the input's.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_CONV_GROUPS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_CONV_GROUPS_H_

#include "device/kernels/layout.h"
#include "kernels/gemm/conv_checks.h"

namespace metal_ops {

// A tensor of a convolution, and its dimension of channels.
struct Channels {
  const Tensor& tensor;
  size_t dim;
};

// How many groups a convolution of these sizes has, whose filter has `filter_c` input channels; `sizes` become those of
// one group.
inline Status SplitGroups(const char* op, int64_t filter_c, ConvSizes* sizes, int64_t* groups) {
  // Both may have no channels at all.
  *groups = sizes->in_c == filter_c ? 1 : sizes->in_c / filter_c;
  if (sizes->out_c % *groups != 0) {
    return InvalidArgument(op, ": filter must have as many output channels for each of ", *groups,
                           " groups of ", filter_c, " input channels, got ", sizes->out_c);
  }
  sizes->in_c /= *groups;
  sizes->out_c /= *groups;
  return Status();
}

// Calls run(a, b, out) with the parts of each group.
template <typename Run>
Status RunGroups(KernelContext* ctx, const char* op, int64_t groups, const Channels& a,
                 const Channels& b, const Channels& out, const Run& run) {
  if (groups == 1) return run(a.tensor, b.tensor, out.tensor);
  const Channels* const wholes[] = {&a, &b, &out};
  for (int64_t group = 0; group < groups; ++group) {
    Tensor parts[3];
    Walk places[3];
    for (int i = 0; i < 3; ++i) {
      Shape shape = wholes[i]->tensor.shape();
      places[i] = {DenseStrides(shape)};
      shape[wholes[i]->dim] /= groups;
      places[i].offset = group * shape[wholes[i]->dim] * places[i].strides[wholes[i]->dim];
      RETURN_IF_ERROR(ctx->AllocateTemp(wholes[i]->tensor.dtype(), shape, &parts[i]));
    }
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) -> Status {
      for (int i = 0; i < 2; ++i) {
        RETURN_IF_ERROR(EncodeCopy(encoder, op, parts[i].shape(), wholes[i]->tensor, places[i],
                                   parts[i], {DenseStrides(parts[i].shape())}));
      }
      return Status();
    }));
    RETURN_IF_ERROR(run(parts[0], parts[1], parts[2]));
    RETURN_IF_ERROR(Encode(ctx, [&](Encoder& encoder) {
      return EncodeCopy(encoder, op, parts[2].shape(), parts[2], {DenseStrides(parts[2].shape())},
                        out.tensor, places[2]);
    }));
  }
  return Status();
}

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_NN_CONV_GROUPS_H_
