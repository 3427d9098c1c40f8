// Groups: wait for, or be told of, the end of a set of work items.
#ifndef HOSTMETAL_DISPATCH_GROUP_H_
#define HOSTMETAL_DISPATCH_GROUP_H_

#include <dispatch/queue.h>

DISPATCH_DECL(dispatch_group);

DISPATCH_EXPORT dispatch_group_t dispatch_group_create(void) DISPATCH_RETURNS_RETAINED;
DISPATCH_EXPORT void dispatch_group_enter(dispatch_group_t group);
DISPATCH_EXPORT void dispatch_group_leave(dispatch_group_t group);
// 0 when the group emptied in time, else non-zero.
DISPATCH_EXPORT intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout);
DISPATCH_EXPORT void dispatch_group_async_f(dispatch_group_t group, dispatch_queue_t queue,
                                            void* context, dispatch_function_t work);
DISPATCH_EXPORT void dispatch_group_notify_f(dispatch_group_t group, dispatch_queue_t queue,
                                             void* context, dispatch_function_t work);
#ifdef __BLOCKS__
DISPATCH_EXPORT void dispatch_group_async(dispatch_group_t group, dispatch_queue_t queue,
                                          dispatch_block_t block);
DISPATCH_EXPORT void dispatch_group_notify(dispatch_group_t group, dispatch_queue_t queue,
                                           dispatch_block_t block);
#endif

#endif  // HOSTMETAL_DISPATCH_GROUP_H_
