// Shared by the ops that only move elements.

#ifndef METAL_OPS_DEVICE_KERNELS_LAYOUT_H_
#define METAL_OPS_DEVICE_KERNELS_LAYOUT_H_

#include "device/kernels/strided.h"
#include "kernels/tensorflow/op_kernel.h"

// Every dtype but int32 (host memory, see elementwise_metal.mm) and those that are no plain bytes.
#define METAL_DEVICE_MOVABLE_TYPES                                                   \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64, TF_COMPLEX128, TF_BOOL, \
   TF_INT8,  TF_INT16, TF_INT64,    TF_UINT8,  TF_UINT16,    TF_UINT32,     TF_UINT64}
// With int32, for ops whose int32 TensorFlow does not keep in host memory: results of other ops.
#define METAL_DEVICE_ALL_TYPES                                                                 \
  {TF_FLOAT, TF_HALF,  TF_BFLOAT16, TF_DOUBLE, TF_COMPLEX64, TF_COMPLEX128, TF_BOOL,  TF_INT8, \
   TF_INT16, TF_INT32, TF_INT64,    TF_UINT8,  TF_UINT16,    TF_UINT32,     TF_UINT64}

namespace metal_ops {

// The numbers in a shape-like argument, of signed integers of any size, in host memory.
Status Indices(const char* op, const char* argument, const Tensor& tensor, Shape* values);

// An input, converted if it is of another dtype.
Status InputAs(KernelContext* ctx, const char* op, int input, DType dtype, Tensor* tensor);

// Indices of int32 or int64, made of int16.
Status IndexInput(KernelContext* ctx, const char* op, int input, Tensor* indices);

// The numbers before and behind each dimension, of a matrix [rows, 2] in host memory.
Status Pairs(const char* op, const char* name, const Tensor& tensor, int64_t rows, Shape* first,
             Shape* second);

// That `shape`, which the argument gives or results in, is one that a tensor can have.
Status CheckShape(const char* op, const char* argument, const Shape& shape);

// Repeats `value`, of shape `from`, over `out`.
Status EncodeSpread(Encoder& encoder, const char* op, const Value& value, const Shape& from,
                    const Tensor& out);

// Zeros of any dtype.
Status EncodeZeros(Encoder& encoder, const char* op, const Tensor& out);

// The same, where that is all of an op's work.
Status ZeroOutput(KernelContext* ctx, const char* op, const Tensor& out);

}  // namespace metal_ops

#endif  // METAL_OPS_DEVICE_KERNELS_LAYOUT_H_
