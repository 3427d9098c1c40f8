// Outputs that are parts of an input's memory: see part.h.

#include "kernels/tensorflow/part.h"

#include "kernels/tensorflow/cc_tensor.h"

namespace metal_ops {
namespace {

using tensorflow::TensorBuffer;
using tensorflow::TensorCApi;

// Not TF_NewTensor, whose memory TensorFlow takes for foreign memory: no kernel would write it in place, and the
// tensor it is a part of would not be known, so that a part of a part of a part would keep them all.
class PartBuffer : public TensorBuffer {
 public:
  PartBuffer(void* address, size_t bytes, TensorBuffer* of, void (*release)(void*))
      : TensorBuffer(address), bytes_(bytes), whole_(of->root_buffer()), release_(release) {
    whole_->Ref();
  }
  ~PartBuffer() override {
    release_(data());
    whole_->Unref();
  }

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return whole_; }
  void FillAllocationDescription(tensorflow::AllocationDescription* proto) const override {
    whole_->FillAllocationDescription(proto);
  }
  bool GetAllocatedBytes(size_t* bytes) const override { return whole_->GetAllocatedBytes(bytes); }

 private:
  const size_t bytes_;
  TensorBuffer* const whole_;
  void (*const release_)(void*);
};

}  // namespace

Status SetPartOutput(KernelContext* ctx, int input, int i, const Shape& shape, void* address,
                     void (*release)(void* address)) {
  tensorflow::OpKernelContext* const cc = CcContext(ctx);
  const tensorflow::Tensor& in = cc->input(input);
  tensorflow::TensorShape dims;
  for (const int64_t dim : shape) dims.AddDim(dim);
  const size_t bytes =
      static_cast<size_t>(dims.num_elements()) * tensorflow::DataTypeSize(in.dtype());
  auto* const part = new PartBuffer(address, bytes, TensorCApi::Buffer(in), release);
  const tensorflow::core::ScopedUnref unref(part);
  cc->set_output(i, TensorCApi::MakeTensor(static_cast<TF_DataType>(in.dtype()), dims, part));
  return Status();
}

}  // namespace metal_ops
