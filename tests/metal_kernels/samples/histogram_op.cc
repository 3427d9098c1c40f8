// A third party's op, first half: registration under header names of an older TensorFlow.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/core/status.h"
#include "tensorflow/core/platform/types.h"
#include "tensorflow/core/public/version.h"

#if TF_MAJOR_VERSION < 2
#error "TensorFlow 2 is needed"
#endif

using namespace tensorflow;
using shape_inference::InferenceContext;
using shape_inference::ShapeHandle;

static Status HistogramShape(InferenceContext* c) {
  ShapeHandle values;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &values));
  int32 bins;
  TF_RETURN_IF_ERROR(c->GetAttr("bins", &bins));
  if (bins < 1) return errors::InvalidArgument("bins must be positive, got ", bins);
  c->set_output(0, c->Vector(bins));
  c->set_output(1, c->Scalar());
  return Status::OK();
}

REGISTER_OP("SampleHistogram")
    .Attr("T: {float, half} = DT_FLOAT")
    .Attr("bins: int = 8")
    .Attr("range: list(float) = [0.0, 1.0]")
    .Input("values: T")
    .Output("counts: uint32")
    .Output("total: float")
    .SetShapeFn(HistogramShape);
