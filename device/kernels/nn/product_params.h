// Tiles of the products that product.metal has: of many columns, which are neighbours in b, on
// processors, and of few.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_

#define PRODUCT_ROWS 4
#define PRODUCT_COLUMNS 64
#define PRODUCT_FEW_COLUMNS 4

#endif  // METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_
