// Immutable bytes in one region, as -[MTLDevice newLibraryWithData:error:] takes them.
#ifndef HOSTMETAL_DISPATCH_DATA_H_
#define HOSTMETAL_DISPATCH_DATA_H_

#include <dispatch/queue.h>

DISPATCH_DECL(dispatch_data);

#ifdef __BLOCKS__
// The bytes are copied.
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT ((dispatch_block_t)0)
// The bytes came from malloc and are freed with the object.
DISPATCH_EXPORT const dispatch_block_t _dispatch_data_destructor_free;
#define DISPATCH_DATA_DESTRUCTOR_FREE (_dispatch_data_destructor_free)

DISPATCH_EXPORT dispatch_data_t
dispatch_data_create(const void* buffer, size_t size, dispatch_queue_t queue,
                     dispatch_block_t destructor) DISPATCH_RETURNS_RETAINED;
#endif
DISPATCH_EXPORT size_t dispatch_data_get_size(dispatch_data_t data);
// A new reference to the bytes as one region; release it when done with the pointer.
DISPATCH_EXPORT dispatch_data_t dispatch_data_create_map(dispatch_data_t data, const void** buffer,
                                                         size_t* size) DISPATCH_RETURNS_RETAINED;

#endif  // HOSTMETAL_DISPATCH_DATA_H_
