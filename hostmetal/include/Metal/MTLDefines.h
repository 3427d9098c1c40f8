// Export and availability macros of the Metal headers.
#ifndef HOSTMETAL_MTLDEFINES_H_
#define HOSTMETAL_MTLDEFINES_H_

#import <Availability.h>
#import <CoreFoundation/CFDate.h>
#import <Foundation/Foundation.h>
#import <TargetConditionals.h>

#define MTL_EXPORT __attribute__((visibility("default")))
#ifdef __cplusplus
#define MTL_EXTERN extern "C" MTL_EXPORT
#else
#define MTL_EXTERN extern MTL_EXPORT
#endif

// GNUstep declares neither of these.
typedef NSString* NSErrorUserInfoKey;
#ifndef NS_RETURNS_INNER_POINTER
#define NS_RETURNS_INNER_POINTER __attribute__((objc_returns_inner_pointer))
#endif

#endif  // HOSTMETAL_MTLDEFINES_H_
