// What hostmetal corrects in GNUstep: see hostmetal/src/file_manager.mm.
#include <unistd.h>

#include "tests/hostmetal/harness.h"

TEST(file_enumerators_of_urls_give_urls) {
  char folder[] = "/tmp/hostmetal-files-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  NSString* root = [NSString stringWithUTF8String:folder];
  NSFileManager* files = [NSFileManager defaultManager];
  [files createDirectoryAtPath:[root stringByAppendingPathComponent:@"a/.hidden"]
      withIntermediateDirectories:YES
                       attributes:nil
                            error:NULL];
  for (NSString* name in @[ @"a/x.metallib", @"a/.hidden/y.metallib", @"z.txt" ]) {
    [files createFileAtPath:[root stringByAppendingPathComponent:name]
                   contents:[NSData data]
                 attributes:nil];
  }
  auto count = [&](NSUInteger options) {
    int urls = 0;
    for (NSURL* url in [files enumeratorAtURL:[NSURL fileURLWithPath:root]
                   includingPropertiesForKeys:nil
                                      options:options
                                 errorHandler:nil]) {
      CHECK([url isKindOfClass:[NSURL class]] && [files fileExistsAtPath:[url path]]);
      ++urls;
    }
    return urls;
  };
  CHECK_EQ(count(0), 5);
  CHECK_EQ(count(NSDirectoryEnumerationSkipsHiddenFiles), 3);
  CHECK_EQ(count(NSDirectoryEnumerationSkipsSubdirectoryDescendants), 2);
  CHECK([files enumeratorAtURL:[NSURL fileURLWithPath:@"/no/such/folder"]
            includingPropertiesForKeys:nil
                               options:0
                          errorHandler:nil] == nil);
  [files removeItemAtPath:root error:NULL];
}
