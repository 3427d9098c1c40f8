// CoreFoundation's numbers, types and collections, over Foundation's objects.
#import <Foundation/Foundation.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <limits>

CFBooleanRef kCFBooleanTrue = (CFBooleanRef)[[NSNumber numberWithBool:YES] retain];
CFBooleanRef kCFBooleanFalse = (CFBooleanRef)[[NSNumber numberWithBool:NO] retain];
const CFArrayCallBacks kCFTypeArrayCallBacks = {0};
const CFDictionaryKeyCallBacks kCFTypeDictionaryKeyCallBacks = {0};
const CFDictionaryValueCallBacks kCFTypeDictionaryValueCallBacks = {0};

namespace {

enum TypeId : CFTypeID {
  kOther = 1,
  kString,
  kNumber,
  kBoolean,
  kArray,
  kDictionary,
  kData,
  kUrl,
  kBundle
};

NSNumber* Number(CFNumberRef number) { return (NSNumber*)number; }

bool IsBoolean(id object) {
  return object == (id)kCFBooleanTrue || object == (id)kCFBooleanFalse ||
         ([object isKindOfClass:[NSNumber class]] &&
          [object isKindOfClass:[(id)kCFBooleanTrue class]]);
}

CFNumberType Fixed(CFNumberType type) {
  switch (type) {
    case kCFNumberCharType:
      return kCFNumberSInt8Type;
    case kCFNumberShortType:
      return kCFNumberSInt16Type;
    case kCFNumberIntType:
      return kCFNumberSInt32Type;
    case kCFNumberLongType:
    case kCFNumberLongLongType:
    case kCFNumberCFIndexType:
    case kCFNumberNSIntegerType:
      return kCFNumberSInt64Type;
    case kCFNumberFloatType:
      return kCFNumberFloat32Type;
    case kCFNumberDoubleType:
    case kCFNumberCGFloatType:
      return kCFNumberFloat64Type;
    default:
      return type;
  }
}

// Whether the number is T's; the nearest of T's is written.
template <typename T>
Boolean Write(NSNumber* number, void* value) {
  const bool real = CFNumberIsFloatType((CFNumberRef)number);
  T got;
  bool same;
  if (real || T(0.5) != T(0)) {
    const double exact = [number doubleValue];
    if (T(0.5) != T(0)) {
      got = T(exact);
      same = double(got) == exact || exact != exact;
      if (!real) same = same && (long long)(got) == [number longLongValue];
    } else {
      const double low = double(std::numeric_limits<T>::min());
      const double high = -low;  // the first that is too large
      got = exact != exact  ? T(0)
            : exact < low   ? std::numeric_limits<T>::min()
            : exact >= high ? std::numeric_limits<T>::max()
                            : T(exact);
      same = exact >= low && exact < high && double(got) == exact;
    }
  } else {
    const long long exact = [number longLongValue];
    got = T(exact);
    same = (long long)(got) == exact;
  }
  memcpy(value, &got, sizeof got);
  return same;
}

NSArray* Array(CFArrayRef array) { return (NSArray*)array; }
NSDictionary* Dictionary(CFDictionaryRef dictionary) { return (NSDictionary*)dictionary; }

// Whether a collection holds objects; says why there is none that holds anything else.
bool HoldsObjects(const char* function, const void* given, const void* objects) {
  if (given == objects) return true;
  fprintf(stderr,
          "hostmetal: %s: only collections of objects are there, with kCFType...CallBacks\n",
          function);
  return false;
}

}  // namespace

void CFShow(CFTypeRef object) {
  @autoreleasepool {
    fprintf(stderr, "%s\n", [[(id)object description] UTF8String]);
  }
}

CFTypeID CFGetTypeID(CFTypeRef of) {
  id object = (id)of;
  if ([object isKindOfClass:[NSString class]]) return kString;
  if (IsBoolean(object)) return kBoolean;
  if ([object isKindOfClass:[NSNumber class]]) return kNumber;
  if ([object isKindOfClass:[NSArray class]]) return kArray;
  if ([object isKindOfClass:[NSDictionary class]]) return kDictionary;
  if ([object isKindOfClass:[NSData class]]) return kData;
  if ([object isKindOfClass:[NSURL class]]) return kUrl;
  return [object isKindOfClass:[NSBundle class]] ? kBundle : kOther;
}
CFTypeID CFStringGetTypeID(void) { return kString; }
CFTypeID CFNumberGetTypeID(void) { return kNumber; }
CFTypeID CFBooleanGetTypeID(void) { return kBoolean; }
CFTypeID CFArrayGetTypeID(void) { return kArray; }
CFTypeID CFDictionaryGetTypeID(void) { return kDictionary; }
CFTypeID CFDataGetTypeID(void) { return kData; }
CFTypeID CFURLGetTypeID(void) { return kUrl; }
CFTypeID CFBundleGetTypeID(void) { return kBundle; }

Boolean CFBooleanGetValue(CFBooleanRef boolean) { return [(NSNumber*)boolean boolValue]; }

CFNumberRef CFNumberCreate(CFAllocatorRef, CFNumberType type, const void* value) {
  switch (Fixed(type)) {
    case kCFNumberSInt8Type:
      return (CFNumberRef)[[NSNumber alloc] initWithChar:*static_cast<const signed char*>(value)];
    case kCFNumberSInt16Type:
      return (CFNumberRef)[[NSNumber alloc] initWithShort:*static_cast<const short*>(value)];
    case kCFNumberSInt32Type:
      return (CFNumberRef)[[NSNumber alloc] initWithInt:*static_cast<const int*>(value)];
    case kCFNumberSInt64Type:
      return (CFNumberRef)[[NSNumber alloc] initWithLongLong:*static_cast<const long long*>(value)];
    case kCFNumberFloat32Type:
      return (CFNumberRef)[[NSNumber alloc] initWithFloat:*static_cast<const float*>(value)];
    case kCFNumberFloat64Type:
      return (CFNumberRef)[[NSNumber alloc] initWithDouble:*static_cast<const double*>(value)];
    default:
      return nullptr;
  }
}
CFNumberType CFNumberGetType(CFNumberRef number) {
  switch ([Number(number) objCType][0]) {
    case 'c':
    case 'B':
      return kCFNumberSInt8Type;
    case 's':
    case 'C':
      return kCFNumberSInt16Type;
    case 'i':
    case 'S':
      return kCFNumberSInt32Type;
    case 'f':
      return kCFNumberFloat32Type;
    case 'd':
      return kCFNumberFloat64Type;
    default:
      return kCFNumberSInt64Type;
  }
}
CFIndex CFNumberGetByteSize(CFNumberRef number) {
  constexpr CFIndex kBytes[] = {0, 1, 2, 4, 8, 4, 8};
  return kBytes[CFNumberGetType(number)];
}
Boolean CFNumberIsFloatType(CFNumberRef number) {
  const CFNumberType type = CFNumberGetType(number);
  return type == kCFNumberFloat32Type || type == kCFNumberFloat64Type;
}
Boolean CFNumberGetValue(CFNumberRef number, CFNumberType type, void* value) {
  switch (Fixed(type)) {
    case kCFNumberSInt8Type:
      return Write<int8_t>(Number(number), value);
    case kCFNumberSInt16Type:
      return Write<int16_t>(Number(number), value);
    case kCFNumberSInt32Type:
      return Write<int32_t>(Number(number), value);
    case kCFNumberSInt64Type:
      return Write<int64_t>(Number(number), value);
    case kCFNumberFloat32Type:
      return Write<float>(Number(number), value);
    case kCFNumberFloat64Type:
      return Write<double>(Number(number), value);
    default:
      return false;
  }
}
CFComparisonResult CFNumberCompare(CFNumberRef a, CFNumberRef b, void*) {
  return [Number(a) compare:Number(b)];
}

CFArrayRef CFArrayCreate(CFAllocatorRef, const void** values, CFIndex count,
                         const CFArrayCallBacks* callbacks) {
  if (!HoldsObjects("CFArrayCreate", callbacks, &kCFTypeArrayCallBacks)) return nullptr;
  return (CFArrayRef)[[NSArray alloc] initWithObjects:(id*)(values) count:NSUInteger(count)];
}
CFMutableArrayRef CFArrayCreateMutable(CFAllocatorRef, CFIndex, const CFArrayCallBacks* callbacks) {
  if (!HoldsObjects("CFArrayCreateMutable", callbacks, &kCFTypeArrayCallBacks)) return nullptr;
  return (CFMutableArrayRef)[[NSMutableArray alloc] init];
}
void CFArrayAppendValue(CFMutableArrayRef array, const void* value) {
  [(NSMutableArray*)array addObject:(id)value];
}
CFIndex CFArrayGetCount(CFArrayRef array) { return CFIndex([Array(array) count]); }
const void* CFArrayGetValueAtIndex(CFArrayRef array, CFIndex index) {
  return [Array(array) objectAtIndex:NSUInteger(index)];
}

CFDictionaryRef CFDictionaryCreate(CFAllocatorRef, const void** keys, const void** values,
                                   CFIndex count, const CFDictionaryKeyCallBacks* of_keys,
                                   const CFDictionaryValueCallBacks* of_values) {
  if (!HoldsObjects("CFDictionaryCreate", of_keys, &kCFTypeDictionaryKeyCallBacks) ||
      !HoldsObjects("CFDictionaryCreate", of_values, &kCFTypeDictionaryValueCallBacks)) {
    return nullptr;
  }
  return (CFDictionaryRef)
      [[NSDictionary alloc] initWithObjects:(id*)(values)
                                    forKeys:(id<NSCopying>*)(keys)count:NSUInteger(count)];
}
CFMutableDictionaryRef CFDictionaryCreateMutable(CFAllocatorRef, CFIndex,
                                                 const CFDictionaryKeyCallBacks* of_keys,
                                                 const CFDictionaryValueCallBacks* of_values) {
  if (!HoldsObjects("CFDictionaryCreateMutable", of_keys, &kCFTypeDictionaryKeyCallBacks) ||
      !HoldsObjects("CFDictionaryCreateMutable", of_values, &kCFTypeDictionaryValueCallBacks)) {
    return nullptr;
  }
  return (CFMutableDictionaryRef)[[NSMutableDictionary alloc] init];
}
CFIndex CFDictionaryGetCount(CFDictionaryRef dictionary) {
  return CFIndex([Dictionary(dictionary) count]);
}
const void* CFDictionaryGetValue(CFDictionaryRef dictionary, const void* key) {
  return [Dictionary(dictionary) objectForKey:(id)key];
}
Boolean CFDictionaryGetValueIfPresent(CFDictionaryRef dictionary, const void* key,
                                      const void** value) {
  const void* found = CFDictionaryGetValue(dictionary, key);
  if (found && value) *value = found;
  return found != nullptr;
}
Boolean CFDictionaryContainsKey(CFDictionaryRef dictionary, const void* key) {
  return CFDictionaryGetValue(dictionary, key) != nullptr;
}
void CFDictionarySetValue(CFMutableDictionaryRef dictionary, const void* key, const void* value) {
  [(NSMutableDictionary*)dictionary setObject:(id)value forKey:(id)key];
}
void CFDictionaryRemoveValue(CFMutableDictionaryRef dictionary, const void* key) {
  [(NSMutableDictionary*)dictionary removeObjectForKey:(id)key];
}
