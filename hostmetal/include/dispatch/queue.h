// Serial, concurrent, global and main queues. Quality of service is accepted as a number and has no
// effect here.
#ifndef HOSTMETAL_DISPATCH_QUEUE_H_
#define HOSTMETAL_DISPATCH_QUEUE_H_

#include <dispatch/base.h>
#include <dispatch/object.h>
#include <dispatch/time.h>

DISPATCH_DECL(dispatch_queue);
DISPATCH_DECL(dispatch_queue_attr);
#ifdef __OBJC__
typedef dispatch_queue_t dispatch_queue_global_t;
typedef dispatch_queue_t dispatch_queue_main_t;
typedef dispatch_queue_t dispatch_queue_serial_t;
typedef dispatch_queue_t dispatch_queue_concurrent_t;
#endif

#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)0)
DISPATCH_EXPORT dispatch_queue_attr_t _dispatch_queue_attr_concurrent(void);
#define DISPATCH_QUEUE_CONCURRENT (_dispatch_queue_attr_concurrent())

#define DISPATCH_QUEUE_PRIORITY_HIGH 2
#define DISPATCH_QUEUE_PRIORITY_DEFAULT 0
#define DISPATCH_QUEUE_PRIORITY_LOW (-2)
#define DISPATCH_QUEUE_PRIORITY_BACKGROUND INT16_MIN

typedef unsigned int dispatch_qos_class_t;
#ifndef QOS_CLASS_DEFAULT
#define QOS_CLASS_USER_INTERACTIVE 0x21u
#define QOS_CLASS_USER_INITIATED 0x19u
#define QOS_CLASS_DEFAULT 0x15u
#define QOS_CLASS_UTILITY 0x11u
#define QOS_CLASS_BACKGROUND 0x09u
#define QOS_CLASS_UNSPECIFIED 0x00u
#endif

// Both return an attribute as it came: every work item has an autorelease pool.
DISPATCH_EXPORT dispatch_queue_attr_t dispatch_queue_attr_make_with_qos_class(
    dispatch_queue_attr_t attr, dispatch_qos_class_t qos_class, int relative_priority);
typedef unsigned long dispatch_autorelease_frequency_t;
#define DISPATCH_AUTORELEASE_FREQUENCY_INHERIT 0ul
#define DISPATCH_AUTORELEASE_FREQUENCY_WORK_ITEM 1ul
#define DISPATCH_AUTORELEASE_FREQUENCY_NEVER 2ul
DISPATCH_EXPORT dispatch_queue_attr_t dispatch_queue_attr_make_with_autorelease_frequency(
    dispatch_queue_attr_t attr, dispatch_autorelease_frequency_t frequency);
#define DISPATCH_QUEUE_SERIAL_WITH_AUTORELEASE_POOL                          \
  dispatch_queue_attr_make_with_autorelease_frequency(DISPATCH_QUEUE_SERIAL, \
                                                      DISPATCH_AUTORELEASE_FREQUENCY_WORK_ITEM)
#define DISPATCH_QUEUE_CONCURRENT_WITH_AUTORELEASE_POOL                          \
  dispatch_queue_attr_make_with_autorelease_frequency(DISPATCH_QUEUE_CONCURRENT, \
                                                      DISPATCH_AUTORELEASE_FREQUENCY_WORK_ITEM)

DISPATCH_EXPORT dispatch_queue_t
dispatch_queue_create(const char* label, dispatch_queue_attr_t attr) DISPATCH_RETURNS_RETAINED;
DISPATCH_EXPORT dispatch_queue_t dispatch_get_global_queue(intptr_t identifier, uintptr_t flags);
// Drained by dispatch_main() only: a process without it never runs the blocks queued here.
DISPATCH_EXPORT dispatch_queue_t dispatch_get_main_queue(void);
DISPATCH_EXPORT void dispatch_main(void) __attribute__((noreturn));

#define DISPATCH_CURRENT_QUEUE_LABEL ((dispatch_queue_t)0)
DISPATCH_EXPORT const char* dispatch_queue_get_label(dispatch_queue_t queue);

#ifdef __BLOCKS__
DISPATCH_EXPORT void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
DISPATCH_EXPORT void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
DISPATCH_EXPORT void dispatch_async_and_wait(dispatch_queue_t queue, dispatch_block_t block);
DISPATCH_EXPORT void dispatch_barrier_async(dispatch_queue_t queue, dispatch_block_t block);
DISPATCH_EXPORT void dispatch_barrier_sync(dispatch_queue_t queue, dispatch_block_t block);
DISPATCH_EXPORT void dispatch_after(dispatch_time_t when, dispatch_queue_t queue,
                                    dispatch_block_t block);
// `queue` may be DISPATCH_APPLY_AUTO.
DISPATCH_EXPORT void dispatch_apply(size_t iterations, dispatch_queue_t queue,
                                    void (^block)(size_t iteration));
#endif
#define DISPATCH_APPLY_AUTO ((dispatch_queue_t)0)
DISPATCH_EXPORT void dispatch_async_f(dispatch_queue_t queue, void* context,
                                      dispatch_function_t work);
DISPATCH_EXPORT void dispatch_sync_f(dispatch_queue_t queue, void* context,
                                     dispatch_function_t work);
DISPATCH_EXPORT void dispatch_async_and_wait_f(dispatch_queue_t queue, void* context,
                                               dispatch_function_t work);
DISPATCH_EXPORT void dispatch_barrier_async_f(dispatch_queue_t queue, void* context,
                                              dispatch_function_t work);
DISPATCH_EXPORT void dispatch_barrier_sync_f(dispatch_queue_t queue, void* context,
                                             dispatch_function_t work);
DISPATCH_EXPORT void dispatch_after_f(dispatch_time_t when, dispatch_queue_t queue, void* context,
                                      dispatch_function_t work);
DISPATCH_EXPORT void dispatch_apply_f(size_t iterations, dispatch_queue_t queue, void* context,
                                      void (*work)(void* context, size_t iteration));

// Keys are compared by address.
DISPATCH_EXPORT void dispatch_queue_set_specific(dispatch_queue_t queue, const void* key,
                                                 void* context, dispatch_function_t destructor);
DISPATCH_EXPORT void* dispatch_queue_get_specific(dispatch_queue_t queue, const void* key);
DISPATCH_EXPORT void* dispatch_get_specific(const void* key);

#endif  // HOSTMETAL_DISPATCH_QUEUE_H_
