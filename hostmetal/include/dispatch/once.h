// dispatch_once: the predicate must have static storage, initially zero.
#ifndef HOSTMETAL_DISPATCH_ONCE_H_
#define HOSTMETAL_DISPATCH_ONCE_H_

#include <dispatch/base.h>

typedef intptr_t dispatch_once_t;

DISPATCH_EXPORT void dispatch_once_f(dispatch_once_t* predicate, void* context,
                                     dispatch_function_t work);
#ifdef __BLOCKS__
DISPATCH_EXPORT void dispatch_once(dispatch_once_t* predicate, dispatch_block_t block);
#endif

#endif  // HOSTMETAL_DISPATCH_ONCE_H_
