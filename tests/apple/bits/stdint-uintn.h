// In glibc's place: uint64_t is unsigned long long as on macOS, and thus another type than size_t.

#ifndef METAL_OPS_TESTS_APPLE_BITS_STDINT_UINTN_H_
#define METAL_OPS_TESTS_APPLE_BITS_STDINT_UINTN_H_

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;

#endif  // METAL_OPS_TESTS_APPLE_BITS_STDINT_UINTN_H_
