// The functions of Apple's Objective-C runtime and CoreFoundation that hosts in C and C++ call and
// that GCC's runtime does not have: reference counts, pools, and string literals (CFSTR,
// metal-cpp's MTLSTR).
#import <Foundation/Foundation.h>
#include <objc/runtime.h>
#include <string.h>

#define HM_EXPORTED extern "C" __attribute__((visibility("default")))

// Classes are not counted, and those of classes know no such messages.
static bool Counted(id object) { return object && !class_isMetaClass(object_getClass(object)); }
HM_EXPORTED id objc_retain(id object) { return Counted(object) ? [object retain] : object; }
HM_EXPORTED void objc_release(id object) {
  if (Counted(object)) [object release];
}
HM_EXPORTED id objc_autorelease(id object) {
  return Counted(object) ? [object autorelease] : object;
}
HM_EXPORTED void* objc_autoreleasePoolPush(void) { return [[NSAutoreleasePool alloc] init]; }
// Pools that were pushed after it go with it.
HM_EXPORTED void objc_autoreleasePoolPop(void* pool) { [static_cast<id>(pool) release]; }

// The compiler lays down such a string, with a class by the name below and these fields: ASCII, or
// UTF-16 where the literal is more than that.
@interface HMStringLiteral : NSString {
  int _flags;
  const void* _characters;
  long _length;
}
@end

@implementation HMStringLiteral
- (NSUInteger)length {
  return NSUInteger(_length);
}
- (unichar)characterAtIndex:(NSUInteger)index {
  if (index >= NSUInteger(_length)) {
    [NSException
         raise:NSRangeException
        format:@"-[NSString characterAtIndex:]: index %lu of a string of %ld", index, _length];
  }
  constexpr int kUtf16 = 0x07d0;
  return _flags == kUtf16 ? static_cast<const unichar*>(_characters)[index]
                          : static_cast<const unsigned char*>(_characters)[index];
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
- (id)retain {
  return self;
}
- (oneway void)release {
}
- (id)autorelease {
  return self;
}
- (NSUInteger)retainCount {
  return NSUIntegerMax;
}
@end

asm(".globl __CFConstantStringClassReference\n"
    ".set __CFConstantStringClassReference, _OBJC_CLASS_HMStringLiteral\n");
