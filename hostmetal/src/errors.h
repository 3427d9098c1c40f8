// Errors in Metal's words; strings of C++ and of Objective-C.
#ifndef HOSTMETAL_SRC_ERRORS_H_
#define HOSTMETAL_SRC_ERRORS_H_

#import <Metal/Metal.h>

#include <string>

#include "hostmetal/src/driver.h"

namespace hostmetal {

NSString* ToNSString(const std::string& text);
std::string ToString(NSString* text);
NSError* MakeError(NSString* domain, const Failure& failure);
// Stores an autoreleased error where `error` is wanted; returns nil for the caller to return.
id Refuse(NSError** error, NSString* domain, int code, const std::string& message);
// Callers look at a variable that they never set, not at the result: on a Mac, making a library or a
// pipeline clears it.
inline void NoError(NSError** error) {
  if (error) *error = nil;
}

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_ERRORS_H_
