// Where GNUstep's Foundation says less than Apple's: a file that cannot be read is an NSError and
// not only nil, errors describe themselves as on a Mac, and a few questions of newer releases.
#import <Foundation/Foundation.h>
#include <errno.h>
#include <objc/runtime.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace {

IMP original_string_from_file;
IMP original_string_from_url;

// Why the file cannot be read as Apple puts it: NSCocoaErrorDomain, the error below it, the path.
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

NSError* CocoaError(NSInteger code, NSString* words, NSString* path, int below) {
  NSMutableDictionary* info = [NSMutableDictionary dictionary];
  [info setObject:words forKey:NSLocalizedDescriptionKey];
  if (path) [info setObject:path forKey:NSFilePathErrorKey];
  if (below) {
    [info setObject:[NSError errorWithDomain:NSPOSIXErrorDomain code:below userInfo:nil]
             forKey:NSUnderlyingErrorKey];
  }
  return [NSError errorWithDomain:NSCocoaErrorDomain code:code userInfo:info];
}

NSString* FolderOf(NSString* path) {
  return [[path stringByStandardizingPath] stringByDeletingLastPathComponent];
}

// The system's answer for a path: 0, or why it cannot be looked at or, with `mode`, used so.
int Refused(NSString* path, int mode = F_OK) {
  const char* name = [([path length] ? path : @".") fileSystemRepresentation];
  if (!name) return ENOENT;
  return access(name, mode) == 0 ? 0 : errno;
}

// Why something cannot be written at a path. `exists`: a file there is in its way.
NSError* WhyUnwritten(NSString* path, bool exists) {
  NSString* name = [path lastPathComponent];
  NSString* folder = FolderOf(path);
  if (exists && Refused(path) == 0) {
    return CocoaError(
        516 /* NSFileWriteFileExistsError, which GNUstep does not have */,
        [NSString stringWithFormat:
                      @"The file “%@” couldn’t be saved in the folder “%@” because a file with "
                      @"the same name already exists.",
                      name, [folder lastPathComponent]],
        path, EEXIST);
  }
  int below = Refused(folder);
  if (below == ENOENT || below == ENOTDIR) {
    return CocoaError(NSFileNoSuchFileError,
                      [NSString stringWithFormat:@"The folder “%@” doesn’t exist.", name], path,
                      below);
  }
  if (!below) below = Refused(folder, W_OK);
  if (!below && Refused(path) == 0) below = Refused(path, W_OK);
  if (below == EACCES || below == EPERM) {
    return CocoaError(
        NSFileWriteNoPermissionError,
        [NSString
            stringWithFormat:@"You don’t have permission to save the file “%@” in the folder “%@”.",
                             name, [folder lastPathComponent]],
        path, below);
  }
  return CocoaError(
      NSFileWriteUnknownError,
      [NSString stringWithFormat:@"The file “%@” couldn’t be saved in the folder “%@”.", name,
                                 [folder lastPathComponent]],
      path, below);
}

NSError* WhyUnlisted(NSString* path) {
  const int below = Refused(path);
  if (below != ENOENT && below != ENOTDIR) return WhyUnread(path, false);
  return CocoaError(
      NSFileReadNoSuchFileError,
      [NSString stringWithFormat:@"The folder “%@” doesn’t exist.", [path lastPathComponent]], path,
      below);
}

NSError* WhyUnremoved(NSString* path) {
  int below = Refused(path);
  const bool absent = below == ENOENT || below == ENOTDIR;
  if (!below) below = Refused(FolderOf(path), W_OK);
  const bool forbidden = below == EACCES || below == EPERM;
  NSString* why = forbidden ? @" because you don’t have permission to access it." : @".";
  return CocoaError(
      absent      ? NSFileNoSuchFileError
      : forbidden ? NSFileWriteNoPermissionError
                  : NSFileWriteUnknownError,
      [NSString stringWithFormat:@"“%@” couldn’t be removed%@", [path lastPathComponent], why],
      path, below);
}

// `verb` is the failed action, "copied" or "moved".
NSError* WhyUnmoved(NSString* from, NSString* to, NSString* verb) {
  const int below = Refused(from);
  NSString* name = [from lastPathComponent];
  NSString* place = [FolderOf(to) lastPathComponent];
  if (below) {
    if ([verb isEqualToString:@"copied"]) return WhyUnread(from, false);
    return CocoaError(
        NSFileNoSuchFileError,
        [NSString
            stringWithFormat:
                @"“%@” couldn’t be moved to “%@” because either the former doesn’t exist, or the "
                @"folder containing the latter doesn’t exist.",
                name, place],
        from, below);
  }
  if (Refused(to) == 0) {
    return CocoaError(
        516,
        [NSString
            stringWithFormat:
                @"“%@” couldn’t be %@ to “%@” because an item with the same name already exists.",
                name, verb, place],
        from, EEXIST);
  }
  return WhyUnwritten(to, false);
}

// GNUstep's methods in these places: its own, and after a failure a Mac's error.
struct Methods {
  IMP write_string, write_data, remove, copy, move, list, create, attributes;
} originals;

// With an error that is not read; GNUstep's words are others.
template <class Result, class... Arguments>
Result Call(IMP original, id self, SEL selector, Arguments... arguments) {
  using Function = Result (*)(id, SEL, Arguments..., NSError**);
  return reinterpret_cast<Function>(reinterpret_cast<void*>(original))(self, selector, arguments...,
                                                                       nullptr);
}

template <class Function>
IMP Implementation(Function* function) {
  return reinterpret_cast<IMP>(reinterpret_cast<void*>(function));
}

BOOL WriteString(id self, SEL selector, NSString* path, BOOL atomically, NSStringEncoding encoding,
                 NSError** error) {
  const BOOL done = Call<BOOL>(originals.write_string, self, selector, path, atomically, encoding);
  if (!done && error) {
    *error = [self canBeConvertedToEncoding:encoding]
                 ? WhyUnwritten(path, false)
                 : CocoaError(517 /* NSFileWriteInapplicableStringEncodingError */,
                              @"The text can’t be written in the text encoding that was asked for.",
                              path, 0);
  }
  return done;
}

BOOL WriteData(id self, SEL selector, NSString* path, NSUInteger options, NSError** error) {
  const BOOL done = Call<BOOL>(originals.write_data, self, selector, path, options);
  if (!done && error) *error = WhyUnwritten(path, false);
  return done;
}

BOOL Remove(id self, SEL selector, NSString* path, NSError** error) {
  const BOOL done = Call<BOOL>(originals.remove, self, selector, path);
  if (!done && error) *error = WhyUnremoved(path);
  return done;
}

BOOL Copy(id self, SEL selector, NSString* from, NSString* to, NSError** error) {
  const BOOL done = Call<BOOL>(originals.copy, self, selector, from, to);
  if (!done && error) *error = WhyUnmoved(from, to, @"copied");
  return done;
}

BOOL Move(id self, SEL selector, NSString* from, NSString* to, NSError** error) {
  const BOOL done = Call<BOOL>(originals.move, self, selector, from, to);
  if (!done && error) *error = WhyUnmoved(from, to, @"moved");
  return done;
}

id List(id self, SEL selector, NSString* path, NSError** error) {
  id found = Call<id>(originals.list, self, selector, path);
  if (!found && error) *error = WhyUnlisted(path);
  return found;
}

BOOL Create(id self, SEL selector, NSString* path, BOOL between, NSDictionary* attributes,
            NSError** error) {
  const BOOL done = Call<BOOL>(originals.create, self, selector, path, between, attributes);
  if (!done && error) *error = WhyUnwritten(path, true);
  return done;
}

id Attributes(id self, SEL selector, NSString* path, NSError** error) {
  id found = Call<id>(originals.attributes, self, selector, path);
  if (!found && error) *error = WhyUnread(path, false);
  return found;
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

// The macOS whose Metal this is, as -operatingSystemVersion says it.
id SystemsVersion(id self, SEL selector) {
  const NSOperatingSystemVersion version = [self operatingSystemVersion];
  return [NSString
      stringWithFormat:@"Version %ld.%ld", long(version.majorVersion), long(version.minorVersion)];
}

// Bytes above 127 in strings declared as ASCII are those of Latin-1 on a Mac; GNUstep has no string then.
// Programs read a shader's text so, whose comments have a sign of their authors' languages.
NSStringEncoding Lenient(const void* bytes, NSUInteger length, NSStringEncoding encoding) {
  if (encoding != NSASCIIStringEncoding || !bytes) return encoding;
  const auto* text = static_cast<const unsigned char*>(bytes);
  const bool ascii = std::all_of(text, text + length, [](unsigned char c) { return c < 128; });
  return ascii ? encoding : NSISOLatin1StringEncoding;
}

// For the two classes that allocate strings: all other functions that make strings of bytes call
// these.
template <bool kMutable>
struct OfBytes {
  static IMP original, original_no_copy;
  static id Init(id self, SEL selector, const void* bytes, NSUInteger length,
                 NSStringEncoding encoding) {
    return reinterpret_cast<id (*)(id, SEL, const void*, NSUInteger, NSStringEncoding)>(original)(
        self, selector, bytes, length, Lenient(bytes, length, encoding));
  }
  static id InitNoCopy(id self, SEL selector, void* bytes, NSUInteger length,
                       NSStringEncoding encoding, BOOL free) {
    return reinterpret_cast<id (*)(id, SEL, void*, NSUInteger, NSStringEncoding, BOOL)>(
        original_no_copy)(self, selector, bytes, length, Lenient(bytes, length, encoding), free);
  }
};
template <bool kMutable>
IMP OfBytes<kMutable>::original;
template <bool kMutable>
IMP OfBytes<kMutable>::original_no_copy;

IMP Replace(Class of, SEL selector, IMP replacement) {
  Method method = class_getInstanceMethod(of, selector);
  IMP original = method_getImplementation(method);
  // Where the method is a superclass', it stays as it is there.
  if (!class_addMethod(of, selector, replacement, method_getTypeEncoding(method))) {
    method_setImplementation(method, replacement);
  }
  return original;
}

// In the classes of a cluster as well: the method that one of them inherited when it was first called stays in
// its table.
IMP ReplaceInCluster(Class of, SEL selector, IMP replacement) {
  IMP original = Replace(of, selector, replacement);
  const char* types = method_getTypeEncoding(class_getInstanceMethod(of, selector));
  std::vector<Class> classes(objc_getClassList(nullptr, 0));
  const int n = objc_getClassList(classes.data(), int(classes.size()));
  classes.resize(n < int(classes.size()) ? n : classes.size());
  for (Class one : classes) {
    bool belongs = false;
    for (Class above = one; above && !belongs; above = class_getSuperclass(above)) {
      belongs = above == of;
    }
    if (!belongs || one == of) continue;
    Method found = class_getInstanceMethod(one, selector);
    // Not where it has one of its own.
    if (method_getImplementation(found) == replacement) {
      class_addMethod(one, selector, replacement, types);
    }
  }
  return original;
}

template <bool kMutable>
void ReadAsciiLeniently(Class strings) {
  id allocated = [strings alloc];
  Class of = object_getClass(allocated);
  using Methods = OfBytes<kMutable>;
  Methods::original =
      Replace(of, @selector(initWithBytes:length:encoding:), reinterpret_cast<IMP>(Methods::Init));
  Methods::original_no_copy =
      Replace(of, @selector(initWithBytesNoCopy:length:encoding:freeWhenDone:),
              reinterpret_cast<IMP>(Methods::InitNoCopy));
  [[allocated init] release];
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
  return {hostmetal_macos, 0, 0};
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

namespace {
// On a Mac an object that is autoreleased outside of every pool is kept without a word. Not in +load, which has a pool of its
// own, with which this one would go.
__attribute__((constructor)) void KeepAPool() {
  if ([NSThread isMainThread]) [[NSAutoreleasePool alloc] init];
}
}  // namespace

@interface HMFoundation : NSObject
@end

@implementation HMFoundation
+ (void)load {
  original_string_from_file =
      Replace([NSString class], @selector(initWithContentsOfFile:encoding:error:),
              reinterpret_cast<IMP>(StringFromFile));
  original_string_from_url =
      Replace([NSString class], @selector(initWithContentsOfURL:encoding:error:),
              reinterpret_cast<IMP>(StringFromURL));
  ReadAsciiLeniently<false>([NSString class]);
  ReadAsciiLeniently<true>([NSMutableString class]);
  Class manager = [NSFileManager class];
  originals.write_string =
      ReplaceInCluster([NSString class], @selector(writeToFile:atomically:encoding:error:),
                       Implementation(WriteString));
  originals.write_data = ReplaceInCluster([NSData class], @selector(writeToFile:options:error:),
                                          Implementation(WriteData));
  originals.remove = Replace(manager, @selector(removeItemAtPath:error:), Implementation(Remove));
  originals.copy = Replace(manager, @selector(copyItemAtPath:toPath:error:), Implementation(Copy));
  originals.move = Replace(manager, @selector(moveItemAtPath:toPath:error:), Implementation(Move));
  originals.list =
      Replace(manager, @selector(contentsOfDirectoryAtPath:error:), Implementation(List));
  originals.create = Replace(
      manager, @selector(createDirectoryAtPath:withIntermediateDirectories:attributes:error:),
      Implementation(Create));
  originals.attributes =
      Replace(manager, @selector(attributesOfItemAtPath:error:), Implementation(Attributes));
  Replace([NSProcessInfo class], @selector(operatingSystemVersionString),
          Implementation(SystemsVersion));
  Replace([NSError class], @selector(localizedDescription),
          reinterpret_cast<IMP>(LocalizedDescription));
  Replace([NSError class], @selector(description), reinterpret_cast<IMP>(Description));
}
@end
