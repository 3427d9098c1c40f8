// -[NSFileManager enumeratorAtURL:...] gives URLs, as on a Mac: ops search for their metallib with
// it. GNUstep's gives relative paths.
#import <Foundation/Foundation.h>
#include <objc/runtime.h>

// A subclass of NSEnumerator: GNUstep's NSDirectoryEnumerator cannot be made without a path of its
// own.
@interface HMURLEnumerator : NSEnumerator {
  NSString* _root;
  NSDirectoryEnumerator* _paths;
  NSUInteger _skipped;  // NSDirectoryEnumerationOptions
}
- (id)initWithRoot:(NSString*)root options:(NSUInteger)options;
@end

@implementation HMURLEnumerator
- (id)initWithRoot:(NSString*)root options:(NSUInteger)options {
  self = [super init];
  if (self) {
    _root = [root copy];
    _paths = [[[NSFileManager defaultManager] enumeratorAtPath:root] retain];
    _skipped = options;
  }
  return self;
}
- (void)dealloc {
  [_root release];
  [_paths release];
  [super dealloc];
}
- (id)nextObject {
  NSString* path;
  while ((path = [_paths nextObject])) {
    BOOL hidden = [[path lastPathComponent] hasPrefix:@"."];
    BOOL folder = [[_paths fileAttributes] fileType] == NSFileTypeDirectory;
    if (folder && ((_skipped & NSDirectoryEnumerationSkipsSubdirectoryDescendants) ||
                   (hidden && (_skipped & NSDirectoryEnumerationSkipsHiddenFiles)))) {
      [_paths skipDescendents];
    }
    if (hidden && (_skipped & NSDirectoryEnumerationSkipsHiddenFiles)) continue;
    return [NSURL fileURLWithPath:[_root stringByAppendingPathComponent:path]];
  }
  return nil;
}
- (NSDictionary*)fileAttributes {
  return [_paths fileAttributes];
}
- (NSDictionary*)directoryAttributes {
  return [_paths directoryAttributes];
}
- (void)skipDescendents {
  [_paths skipDescendents];
}
- (void)skipDescendants {
  [_paths skipDescendents];
}
@end

namespace {

id EnumeratorAtURL(id self, SEL selector, NSURL* url, NSArray* keys, NSUInteger options,
                   BOOL (^handler)(NSURL*, NSError*)) {
  BOOL folder = NO;
  if (![[NSFileManager defaultManager] fileExistsAtPath:[url path] isDirectory:&folder]) return nil;
  return [[[HMURLEnumerator alloc] initWithRoot:[url path] options:options] autorelease];
}

}  // namespace

@interface HMFileManager : NSObject
@end

@implementation HMFileManager
+ (void)load {
  Method method = class_getInstanceMethod([NSFileManager class],
                                          @selector(enumeratorAtURL:
                                              includingPropertiesForKeys:options:errorHandler:));
  method_setImplementation(method, reinterpret_cast<IMP>(EnumeratorAtURL));
}
@end
