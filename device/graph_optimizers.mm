// TensorFlow's graph optimizers that are left out for graphs on the device, as tensorflow-metal
// leaves them out: the remapper makes _FusedConv2D of a convolution, a bias and a ReLU on any
// "GPU", and the layout optimizer NCHW, for kernels that only NVIDIA's and AMD's devices have.

#include "tensorflow/c/experimental/grappler/grappler.h"
#include "tensorflow/c/tf_status.h"

namespace {

// An optimizer is part of the registration. Ours has nothing to do, which grappler reads off this
// code.
void Optimize(void*, const TF_Buffer*, const TF_GrapplerItem*, TF_Buffer*, TF_Status* status) {
  TF_SetStatus(status, TF_ABORTED, "Nothing to do.");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void TF_InitGraph(
    TP_OptimizerRegistrationParams* params, TF_Status* status) {
  params->struct_size = TP_OPTIMIZER_REGISTRATION_PARAMS_STRUCT_SIZE;
  params->device_type = "GPU";
  params->optimizer_configs->struct_size = TP_OPTIMIZER_CONFIGS_STRUCT_SIZE;
  params->optimizer_configs->remapping = TF_TriState_Off;
  params->optimizer_configs->layout_optimizer = TF_TriState_Off;
  params->optimizer->struct_size = TP_OPTIMIZER_STRUCT_SIZE;
  params->optimizer->optimize_func = Optimize;
  TF_SetStatus(status, TF_OK, "");
}
