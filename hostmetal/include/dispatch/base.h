// Types and macros shared by the dispatch headers: every dispatch object is an Objective-C object,
// as in Apple's SDK.
#ifndef HOSTMETAL_DISPATCH_BASE_H_
#define HOSTMETAL_DISPATCH_BASE_H_

#include <Availability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#define DISPATCH_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define DISPATCH_EXPORT extern __attribute__((visibility("default")))
#endif

#ifdef __OBJC__
#import <Foundation/NSObject.h>

@protocol OS_dispatch_object <NSObject>
@end
typedef NSObject<OS_dispatch_object>* dispatch_object_t;
#define DISPATCH_DECL(name)       \
  @protocol OS_                   \
  ##name<OS_dispatch_object> @end \
  typedef NSObject<OS_##name>* name##_t
#define OS_OBJECT_USE_OBJC 1
#define DISPATCH_RETURNS_RETAINED __attribute__((ns_returns_retained))
#else
typedef void* dispatch_object_t;
#define DISPATCH_DECL(name) typedef struct name##_s* name##_t
#define OS_OBJECT_USE_OBJC 0
#define DISPATCH_RETURNS_RETAINED
#endif

typedef void (*dispatch_function_t)(void* context);
#ifdef __BLOCKS__
typedef void (^dispatch_block_t)(void);
#endif

#endif  // HOSTMETAL_DISPATCH_BASE_H_
