// Tiles of the products that product.metal has: of many columns, which are neighbours in b, on
// processors, and of few.

#ifndef METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_
#define METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_

#define PRODUCT_ROWS 4
#define PRODUCT_COLUMNS 64
#define PRODUCT_FEW_COLUMNS 4

// So few columns that a processor's vectors lie along the sums: the limit for floats, whose other tiles are 16
// columns wide, and for integers and complex numbers; terms of a vector, or of two.
#define PRODUCT_DOT_FLOATS 4
#define PRODUCT_DOT_COLUMNS 8
#define PRODUCT_DOT_LANES 32

#endif  // METAL_OPS_DEVICE_KERNELS_NN_PRODUCT_PARAMS_H_
