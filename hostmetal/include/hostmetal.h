// hostmetal's own additions to Apple's API, for code that knows it runs on Linux (the device
// plugin).
#ifndef HOSTMETAL_HOSTMETAL_H_
#define HOSTMETAL_HOSTMETAL_H_

#import <Metal/Metal.h>

// The device that runs shaders on the processor, whichever one is the default. Not to be released.
MTL_EXTERN id<MTLDevice> _Nonnull hostmetal_processor(void);

// Whether that device runs the code for vectors of 512 bits of kernels that have some.
MTL_EXTERN bool hostmetal_wide_vectors(void);

// The devices that HOSTMETAL_DEVICE and HOSTMETAL_DEVICES name, the default one first: one, unless
// the environment asks for more. Empty where that is nil.
MTL_EXTERN NSArray<id<MTLDevice>>* _Nonnull hostmetal_devices(void) NS_RETURNS_RETAINED;

// A buffer over the program's own memory, of any address and length, on that device, as
// newBufferWithBytesNoCopy: for whole pages. The memory has to outlive the buffer.
MTL_EXTERN id<MTLBuffer> _Nullable hostmetal_new_buffer_over(id<MTLDevice> _Nonnull processor,
                                                             void* _Nonnull memory,
                                                             NSUInteger length) NS_RETURNS_RETAINED;

// Address of a buffer's bytes on the host, whatever its storage mode; NULL where the host cannot
// reach them: private buffers of a device with memory of its own.
MTL_EXTERN void* _Nullable hostmetal_buffer_address(id<MTLBuffer> _Nonnull buffer);

// The host's bytes out of, or into, a buffer of whatever storage mode, and the same byte all over a
// part of it. They return when it is done and know nothing of command buffers: wait for those
// first. False where the range is not in the buffer, or the device refuses.
MTL_EXTERN bool hostmetal_read(id<MTLBuffer> _Nonnull from, NSUInteger offset, void* _Nonnull to,
                               NSUInteger length);
MTL_EXTERN bool hostmetal_write(id<MTLBuffer> _Nonnull to, NSUInteger offset,
                                const void* _Nonnull from, NSUInteger length);
MTL_EXTERN bool hostmetal_fill(id<MTLBuffer> _Nonnull to, NSUInteger offset, uint8_t value,
                               NSUInteger length);

// Memory of a device for kernels of other processes of this machine, too: they open it by `name`, of
// 64 bytes. A kernel uses it by its address. It begins as zeros, and stays until the process ends.
// `device` is a number in hostmetal_devices(). False where device or system refuse.
MTL_EXTERN bool hostmetal_share_memory(NSUInteger device, NSUInteger length, void* _Nonnull name,
                                       uint64_t* _Nonnull address);
MTL_EXTERN bool hostmetal_open_memory(NSUInteger device, const void* _Nonnull name,
                                      uint64_t* _Nonnull address);

// A buffer object that lies in front of its own (undefined) contents, in one block of memory; on a
// device with memory of its own it is a private buffer, in front of as many addresses that hold
// nothing. For every k < length the address `buffer + k` belongs to this buffer and to nothing
// else. TensorFlow holds a buffer as a plain pointer and adds to it to name a slice. `freed` is
// called when the last reference is gone, before the memory is; it may be NULL.
typedef void (*hostmetal_buffer_freed)(void* _Nonnull buffer, NSUInteger length);
MTL_EXTERN id<MTLBuffer> _Nullable hostmetal_new_inline_buffer(
    id<MTLDevice> _Nonnull device, NSUInteger length,
    hostmetal_buffer_freed _Nullable freed) NS_RETURNS_RETAINED;

// A buffer that is a part of such a one, which it retains: the same memory, and addresses of its own. For every
// k < length `buffer + k` belongs to the part alone. Null where the range does not lie in the buffer.
MTL_EXTERN id<MTLBuffer> _Nullable hostmetal_new_inline_part(
    id<MTLBuffer> _Nonnull of, NSUInteger offset, NSUInteger length,
    hostmetal_buffer_freed _Nullable freed) NS_RETURNS_RETAINED;

// Whether `address` is such a buffer itself: neither a slice of one nor anything else. Two
// comparisons, no search.
MTL_EXTERN bool hostmetal_is_inline_buffer(const void* _Nonnull address);

#endif  // HOSTMETAL_HOSTMETAL_H_
