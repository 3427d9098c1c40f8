// Scans' structs, read by host code and shader alike.

#ifndef METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_PARAMS_H_
#define METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_PARAMS_H_

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

struct PackedScanParams {
  uint32_t exclusive;
  uint32_t reverse;
};
static_assert(sizeof(PackedScanParams) == 8, "host and shader must agree");

#endif  // METAL_OPS_KERNELS_PACKED_SCAN_PACKED_SCAN_PARAMS_H_
