// Error domains, and the making of NSErrors.
#include "hostmetal/src/errors.h"

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";
NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey =
    @"MTLCommandBufferEncoderInfoErrorKey";

namespace hostmetal {

NSString* ToNSString(const std::string& text) {
  NSString* string = [[[NSString alloc] initWithBytes:text.data()
                                               length:text.size()
                                             encoding:NSUTF8StringEncoding] autorelease];
  if (string) return string;
  // Compiler output may quote a source that is not UTF-8.
  return [[[NSString alloc] initWithBytes:text.data()
                                   length:text.size()
                                 encoding:NSISOLatin1StringEncoding] autorelease];
}

std::string ToString(NSString* text) {
  const char* bytes = [text UTF8String];
  return bytes ? bytes : "";
}

NSError* MakeError(NSString* domain, const Failure& failure) {
  NSDictionary* info = [NSDictionary dictionaryWithObject:ToNSString(failure.message)
                                                   forKey:NSLocalizedDescriptionKey];
  return [NSError errorWithDomain:domain code:failure.code userInfo:info];
}

id Refuse(NSError** error, NSString* domain, int code, const std::string& message) {
  if (error) *error = MakeError(domain, {code, message});
  return nil;
}

}  // namespace hostmetal
