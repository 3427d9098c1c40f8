// How large a block of malloc's is.
#ifndef HOSTMETAL_MALLOC_MALLOC_H_
#define HOSTMETAL_MALLOC_MALLOC_H_

#include <malloc.h>
#include <stdlib.h>

static inline size_t malloc_size(const void* block) { return malloc_usable_size((void*)block); }

#endif  // HOSTMETAL_MALLOC_MALLOC_H_
