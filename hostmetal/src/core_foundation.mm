// CoreFoundation's functions, over Foundation's objects.
#import <Foundation/Foundation.h>
#include <string.h>

namespace {

// Foundation's number of an encoding; 0 for those that are not there.
NSStringEncoding FoundationEncoding(CFStringEncoding encoding) {
  switch (encoding) {
    case kCFStringEncodingUTF8:
      return NSUTF8StringEncoding;
    case kCFStringEncodingASCII:
      return NSASCIIStringEncoding;
    case kCFStringEncodingISOLatin1:
      return NSISOLatin1StringEncoding;
    case kCFStringEncodingMacRoman:
      return NSMacOSRomanStringEncoding;
    default:
      return NSStringEncoding(0);
  }
}

NSString* String(CFStringRef string) { return (NSString*)string; }

CFURLRef FileUrl(NSString* path) {
  return path ? (CFURLRef)[[NSURL fileURLWithPath:path] retain] : nullptr;
}

}  // namespace

CFTypeRef CFRetain(CFTypeRef object) { return [(id)object retain]; }
void CFRelease(CFTypeRef object) { [(id)object release]; }
CFTypeRef CFAutorelease(CFTypeRef object) { return [(id)object autorelease]; }
CFIndex CFGetRetainCount(CFTypeRef object) { return CFIndex([(id)object retainCount]); }
Boolean CFEqual(CFTypeRef a, CFTypeRef b) { return [(id)a isEqual:(id)b]; }
CFHashCode CFHash(CFTypeRef object) { return [(id)object hash]; }
CFStringRef CFCopyDescription(CFTypeRef object) {
  return (CFStringRef)[[(id)object description] copy];
}

CFAbsoluteTime CFAbsoluteTimeGetCurrent(void) { return [NSDate timeIntervalSinceReferenceDate]; }

CFDataRef CFDataCreate(CFAllocatorRef, const UInt8* bytes, CFIndex length) {
  return (CFDataRef)[[NSData alloc] initWithBytes:bytes length:NSUInteger(length)];
}
CFIndex CFDataGetLength(CFDataRef data) { return CFIndex([(NSData*)data length]); }
const UInt8* CFDataGetBytePtr(CFDataRef data) {
  return static_cast<const UInt8*>([(NSData*)data bytes]);
}

CFStringRef CFStringCreateWithCString(CFAllocatorRef, const char* text, CFStringEncoding encoding) {
  const NSStringEncoding known = FoundationEncoding(encoding);
  if (!known) return nullptr;
  return (CFStringRef)[[NSString alloc] initWithBytes:text length:strlen(text) encoding:known];
}
CFIndex CFStringGetLength(CFStringRef string) { return CFIndex([String(string) length]); }
CFIndex CFStringGetMaximumSizeForEncoding(CFIndex length, CFStringEncoding encoding) {
  if (!FoundationEncoding(encoding)) return kCFNotFound;
  return encoding == kCFStringEncodingUTF8 ? 3 * length : length;
}
CFComparisonResult CFStringCompare(CFStringRef a, CFStringRef b, CFOptionFlags options) {
  return [String(a) compare:String(b) options:NSStringCompareOptions(options)];
}
Boolean CFStringGetCString(CFStringRef string, char* buffer, CFIndex size,
                           CFStringEncoding encoding) {
  const NSStringEncoding known = FoundationEncoding(encoding);
  if (!known || size <= 0) return false;
  @autoreleasepool {
    NSData* bytes = [String(string) dataUsingEncoding:known allowLossyConversion:NO];
    if (!bytes || [bytes length] >= NSUInteger(size)) return false;
    memcpy(buffer, [bytes bytes], [bytes length]);
    buffer[[bytes length]] = 0;
    return true;
  }
}
const char* CFStringGetCStringPtr(CFStringRef string, CFStringEncoding encoding) {
  return encoding == kCFStringEncodingUTF8 ? [String(string) UTF8String] : nullptr;
}

CFBundleRef CFBundleGetMainBundle(void) { return (CFBundleRef)[NSBundle mainBundle]; }
CFURLRef CFBundleCopyBundleURL(CFBundleRef bundle) {
  return FileUrl([(NSBundle*)bundle bundlePath]);
}
CFURLRef CFBundleCopyResourcesDirectoryURL(CFBundleRef bundle) {
  return FileUrl([(NSBundle*)bundle resourcePath]);
}
CFURLRef CFBundleCopyResourceURL(CFBundleRef bundle, CFStringRef name, CFStringRef type,
                                 CFStringRef folder) {
  return FileUrl([(NSBundle*)bundle pathForResource:String(name)
                                             ofType:String(type)
                                        inDirectory:String(folder)]);
}
CFStringRef CFURLCopyFileSystemPath(CFURLRef url, CFURLPathStyle style) {
  return style == kCFURLPOSIXPathStyle ? (CFStringRef)[[(NSURL*)url path] copy] : nullptr;
}
Boolean CFURLGetFileSystemRepresentation(CFURLRef url, Boolean resolve, UInt8* buffer,
                                         CFIndex size) {
  NSURL* whole = resolve ? [(NSURL*)url absoluteURL] : (NSURL*)url;
  return [whole isFileURL] &&
         CFStringGetCString((CFStringRef)[whole path], reinterpret_cast<char*>(buffer), size,
                            kCFStringEncodingUTF8);
}
