// Included before a file of the Metal kernels and of the device, by the compiler's -include. clang describes each protocol
// that a file sees to the runtime, used or not: 20 KB and 900 relocations in each of a hundred files, 0.8 of the wheel's
// 11 MB. libhostmetal.so describes Metal's once, GNUstep its own; these are enough for who neither adopts a protocol nor
// asks by @protocol().
#ifdef __OBJC__
#pragma clang attribute push(__attribute__((objc_non_runtime_protocol)), apply_to = objc_protocol)
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#pragma clang attribute pop
#endif
