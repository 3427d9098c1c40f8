// Where GNUstep's Foundation says less than Apple's: a file that cannot be read is an NSError and
// not only nil, errors describe themselves as on a Mac, and a few questions of newer releases.
#import <Foundation/Foundation.h>
#include <errno.h>
#include <objc/runtime.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

IMP original_string_from_file;
IMP original_string_from_url;

// Why the file cannot be read as Apple puts it: NSCocoaErrorDomain, what happened below it, the
// path.
NSError* WhyUnread(NSString* path, bool as_text) {
  const char* name = [path fileSystemRepresentation];
  struct stat info;
  int below = 0;
  if (!name || stat(name, &info) != 0) {
    below = name ? errno : ENOENT;
  } else if (S_ISDIR(info.st_mode)) {
    below = EISDIR;
  } else if (access(name, R_OK) != 0) {
    below = errno;
  }
  NSInteger code = NSFileReadUnknownError;
  NSString* why = @".";
  if (below == ENOENT || below == ENOTDIR) {
    code = NSFileReadNoSuchFileError;
    why = @" because there is no such file.";
  } else if (below == EACCES) {
    code = NSFileReadNoPermissionError;
    why = @" because you don’t have permission to view it.";
  } else if (below == 0 && as_text) {
    code = NSFileReadInapplicableStringEncodingError;
    why = @" because it isn’t in the text encoding that was asked for.";
  }
  NSMutableDictionary* info_of_error = [NSMutableDictionary dictionary];
  [info_of_error setObject:[NSString stringWithFormat:@"The file “%@” couldn’t be opened%@",
                                                      [path lastPathComponent], why]
                    forKey:NSLocalizedDescriptionKey];
  if (path) [info_of_error setObject:path forKey:NSFilePathErrorKey];
  if (below) {
    [info_of_error setObject:[NSError errorWithDomain:NSPOSIXErrorDomain code:below userInfo:nil]
                      forKey:NSUnderlyingErrorKey];
  }
  return [NSError errorWithDomain:NSCocoaErrorDomain code:code userInfo:info_of_error];
}

id StringFromFile(id self, SEL selector, NSString* path, NSStringEncoding encoding,
                  NSError** error) {
  NSError* said = nil;
  id string = reinterpret_cast<id (*)(id, SEL, id, NSStringEncoding, NSError**)>(
      original_string_from_file)(self, selector, path, encoding, &said);
  if (!string && error) *error = WhyUnread(path, true);
  return string;
}

id StringFromURL(id self, SEL selector, NSURL* url, NSStringEncoding encoding, NSError** error) {
  NSError* said = nil;
  id string = reinterpret_cast<id (*)(id, SEL, id, NSStringEncoding, NSError**)>(
      original_string_from_url)(self, selector, url, encoding, &said);
  if (!string && error) *error = [url isFileURL] || !said ? WhyUnread([url path], true) : said;
  return string;
}

NSString* SaidOf(NSError* error) {
  NSDictionary* info = [error userInfo];
  return [info objectForKey:NSLocalizedDescriptionKey];
}

NSString* SystemsWords(NSError* error) {
  if (![[error domain] isEqualToString:NSPOSIXErrorDomain]) return nil;
  return [NSString stringWithUTF8String:strerror(int([error code]))];
}

id LocalizedDescription(id self, SEL selector) {
  if (NSString* said = SaidOf(self)) return said;
  if (NSString* words = SystemsWords(self)) {
    return [NSString stringWithFormat:@"The operation couldn’t be completed. %@", words];
  }
  return [NSString stringWithFormat:@"The operation couldn’t be completed. (%@ error %ld.)",
                                    [self domain], long([(NSError*)self code])];
}

id Description(id self, SEL selector) {
  NSString* said = SaidOf(self);
  if (!said) said = SystemsWords(self);
  NSMutableString* text =
      [NSMutableString stringWithFormat:@"Error Domain=%@ Code=%ld \"%@\"", [self domain],
                                        long([(NSError*)self code]), said];
  NSDictionary* info = [self userInfo];
  NSMutableArray* parts = [NSMutableArray array];
  for (NSString* key in [[info allKeys] sortedArrayUsingSelector:@selector(compare:)]) {
    [parts addObject:[NSString stringWithFormat:@"%@=%@", key, [info objectForKey:key]]];
  }
  if ([parts count]) {
    [text appendFormat:@" UserInfo={%@}", [parts componentsJoinedByString:@", "]];
  }
  return text;
}

IMP Replace(Class of, SEL selector, IMP replacement) {
  Method method = class_getInstanceMethod(of, selector);
  IMP original = method_getImplementation(method);
  // Where the method is a superclass', it stays as it is there.
  if (!class_addMethod(of, selector, replacement, method_getTypeEncoding(method))) {
    method_setImplementation(method, replacement);
  }
  return original;
}

}  // namespace

@implementation NSData (Hostmetal)
+ (instancetype)dataWithContentsOfFile:(NSString*)path
                               options:(NSDataReadingOptions)options
                                 error:(NSError**)error {
  NSData* data = [self dataWithContentsOfFile:path];
  if (!data && error) *error = WhyUnread(path, false);
  return data;
}
+ (instancetype)dataWithContentsOfURL:(NSURL*)url
                              options:(NSDataReadingOptions)options
                                error:(NSError**)error {
  NSData* data = [self dataWithContentsOfURL:url];
  if (!data && error) *error = WhyUnread([url path], false);
  return data;
}
- (instancetype)initWithContentsOfFile:(NSString*)path
                               options:(NSDataReadingOptions)options
                                 error:(NSError**)error {
  id data = [self initWithContentsOfFile:path];
  if (!data && error) *error = WhyUnread(path, false);
  return data;
}
- (instancetype)initWithContentsOfURL:(NSURL*)url
                              options:(NSDataReadingOptions)options
                                error:(NSError**)error {
  id data = [self initWithContentsOfURL:url];
  if (!data && error) *error = WhyUnread([url path], false);
  return data;
}
@end

#if GNUSTEP_BASE_MINOR_VERSION < 29
@implementation NSProcessInfo (Hostmetal)
- (NSOperatingSystemVersion)operatingSystemVersion {
  return {14, 0, 0};
}
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)asked {
  NSOperatingSystemVersion ours = [self operatingSystemVersion];
  if (asked.majorVersion != ours.majorVersion) return asked.majorVersion < ours.majorVersion;
  if (asked.minorVersion != ours.minorVersion) return asked.minorVersion < ours.minorVersion;
  return asked.patchVersion <= ours.patchVersion;
}
- (NSProcessInfoThermalState)thermalState {
  return NSProcessInfoThermalStateNominal;
}
- (BOOL)isLowPowerModeEnabled {
  return NO;
}
@end
#endif

@implementation NSFileManager (Hostmetal)
- (NSString*)destinationOfSymbolicLinkAtPath:(NSString*)path error:(NSError**)error {
  NSString* destination = [self pathContentOfSymbolicLinkAtPath:path];
  if (destination || !error) return destination;
  const bool exists = [self attributesOfItemAtPath:path error:nullptr] != nil;
  NSDictionary* info = [NSDictionary dictionaryWithObject:path ? path : @""
                                                   forKey:NSFilePathErrorKey];
  *error = [NSError errorWithDomain:NSCocoaErrorDomain
                               code:exists ? NSFileReadUnknownError : NSFileReadNoSuchFileError
                           userInfo:info];
  return nil;
}
- (NSURL*)temporaryDirectory {
  return [NSURL fileURLWithPath:NSTemporaryDirectory() isDirectory:YES];
}
@end

@interface HMFoundation : NSObject
@end

@implementation HMFoundation
+ (void)load {
  // On a Mac an object that is autoreleased outside of every pool is kept without a word.
  if ([NSThread isMainThread]) [[NSAutoreleasePool alloc] init];
  original_string_from_file =
      Replace([NSString class], @selector(initWithContentsOfFile:encoding:error:),
              reinterpret_cast<IMP>(StringFromFile));
  original_string_from_url =
      Replace([NSString class], @selector(initWithContentsOfURL:encoding:error:),
              reinterpret_cast<IMP>(StringFromURL));
  Replace([NSError class], @selector(localizedDescription),
          reinterpret_cast<IMP>(LocalizedDescription));
  Replace([NSError class], @selector(description), reinterpret_cast<IMP>(Description));
}
@end
