// MPPTensorOpsMatMul2d: the driver's prelude (lib/prelude.h) brings what this header declares, from Metal 4.0 on.
