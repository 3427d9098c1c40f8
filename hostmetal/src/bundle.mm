// The main bundle of a program that is not in a bundle. On a Mac its paths are the program's
// folder; GNUstep answers with a folder that does not exist
// (<folder>/Resources/<program>/Resources), and code that searches there for its .metallib throws.
// Where GNUstep's own answer exists, it stays.
#import <Foundation/Foundation.h>
#include <objc/runtime.h>
#include <sys/auxv.h>
#include <sys/stat.h>

namespace {

IMP original_resource_path;
IMP original_bundle_path;
IMP original_path_for_resource;

bool Exists(NSString* path) {
  struct stat info;
  return path && stat([path fileSystemRepresentation], &info) == 0;
}

// Folder of the path that the program was started by; symbolic links (a virtual environment's
// python) are kept.
NSString* ProgramFolder() {
  static NSString* folder = [] {
    auto* started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
    NSString* path = [NSString stringWithUTF8String:started ? started : ""];
    if (![path isAbsolutePath]) {
      path = [[[NSFileManager defaultManager] currentDirectoryPath]
          stringByAppendingPathComponent:path];
    }
    return [[[path stringByStandardizingPath] stringByDeletingLastPathComponent] retain];
  }();
  return folder;
}

bool IsMain(id bundle) { return bundle == [NSBundle mainBundle]; }

id ResourcePath(id self, SEL selector) {
  id path = reinterpret_cast<id (*)(id, SEL)>(original_resource_path)(self, selector);
  return IsMain(self) && !Exists(path) ? ProgramFolder() : path;
}

id BundlePath(id self, SEL selector) {
  id path = reinterpret_cast<id (*)(id, SEL)>(original_bundle_path)(self, selector);
  // mainBundle itself asks for its path while it is made; nothing exists then that could be main.
  return !Exists(path) && IsMain(self) ? ProgramFolder() : path;
}

id PathForResource(id self, SEL selector, NSString* name, NSString* extension) {
  id path = reinterpret_cast<id (*)(id, SEL, id, id)>(original_path_for_resource)(self, selector,
                                                                                  name, extension);
  if (path || !IsMain(self) || ![name length]) return path;
  NSString* file = [extension length] ? [name stringByAppendingPathExtension:extension] : name;
  file = [ProgramFolder() stringByAppendingPathComponent:file];
  return Exists(file) ? file : nil;
}

IMP Replace(SEL selector, IMP replacement) {
  return method_setImplementation(class_getInstanceMethod([NSBundle class], selector), replacement);
}

}  // namespace

@interface HMBundlePaths : NSObject
@end

@implementation HMBundlePaths
+ (void)load {
  original_resource_path = Replace(@selector(resourcePath), reinterpret_cast<IMP>(ResourcePath));
  original_bundle_path = Replace(@selector(bundlePath), reinterpret_cast<IMP>(BundlePath));
  original_path_for_resource =
      Replace(@selector(pathForResource:ofType:), reinterpret_cast<IMP>(PathForResource));
}
@end
