// What hostmetal corrects in GNUstep: see hostmetal/src/foundation.mm and file_manager.mm.
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "tests/hostmetal/harness.h"

namespace {

// An empty one, where temporary files go.
NSString* NewFolder() {
  NSString* pattern =
      [NSTemporaryDirectory() stringByAppendingPathComponent:@"hostmetal-files-XXXXXX"];
  std::string name = [pattern fileSystemRepresentation];
  CHECK(mkdtemp(name.data()) != nullptr);
  return [NSString stringWithUTF8String:name.c_str()];
}

}  // namespace

TEST(file_enumerators_of_urls_give_urls) {
  NSString* root = NewFolder();
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

TEST(symbolic_links_say_where_they_point) {
  NSString* root = NewFolder();
  NSFileManager* files = [NSFileManager defaultManager];
  NSString* link = [root stringByAppendingPathComponent:@"link"];
  CHECK(symlink("some/where", [link fileSystemRepresentation]) == 0);
  NSError* error = nil;
  CHECK([[files destinationOfSymbolicLinkAtPath:link error:&error] isEqualToString:@"some/where"]);
  CHECK([files destinationOfSymbolicLinkAtPath:root error:&error] == nil);
  CHECK_EQ([error code], NSFileReadUnknownError);
  NSString* missing = [root stringByAppendingPathComponent:@"missing"];
  CHECK([files destinationOfSymbolicLinkAtPath:missing error:&error] == nil);
  CHECK_EQ([error code], NSFileReadNoSuchFileError);
  CHECK([[error domain] isEqualToString:NSCocoaErrorDomain]);
  [files removeItemAtPath:root error:NULL];
}

// Each way to read a file says why it could not, as on a Mac.
TEST(files_that_cannot_be_read_are_errors) {
  NSString* root = NewFolder();
  NSString* latin = [root stringByAppendingPathComponent:@"latin.txt"];
  [[NSData dataWithBytes:"gr\xfc\xdf" length:4] writeToFile:latin atomically:NO];
  struct Reading {
    const char* what;
    id (*read)(NSString*, NSError**);
  };
  const Reading kReadings[] = {
      {"+string",
       [](NSString* path, NSError** error) -> id {
         return [NSString stringWithContentsOfFile:path encoding:NSUTF8StringEncoding error:error];
       }},
      {"-string",
       [](NSString* path, NSError** error) -> id {
         return [[[NSString alloc] initWithContentsOfFile:path
                                                 encoding:NSUTF8StringEncoding
                                                    error:error] autorelease];
       }},
      {"+string of URL",
       [](NSString* path, NSError** error) -> id {
         return [NSString stringWithContentsOfURL:[NSURL fileURLWithPath:path]
                                         encoding:NSUTF8StringEncoding
                                            error:error];
       }},
      {"+data",
       [](NSString* path, NSError** error) -> id {
         return [NSData dataWithContentsOfFile:path options:0 error:error];
       }},
      {"-data",
       [](NSString* path, NSError** error) -> id {
         return [[[NSData alloc] initWithContentsOfFile:path options:0 error:error] autorelease];
       }},
      {"+data of URL",
       [](NSString* path, NSError** error) -> id {
         return [NSData dataWithContentsOfURL:[NSURL fileURLWithPath:path] options:0 error:error];
       }},
  };
  NSString* missing = [root stringByAppendingPathComponent:@"no.txt"];
  for (const Reading& reading : kReadings) {
    NSError* error = nil;
    CHECK(reading.read(missing, &error) == nil);
    CHECK_EQ(harness::Text([error domain]), "NSCocoaErrorDomain");
    CHECK_EQ([error code], 260);
    CHECK_EQ(harness::Text([error localizedDescription]),
             "The file “no.txt” couldn’t be opened because there is no such file.");
    CHECK_EQ(harness::Text([[error userInfo] objectForKey:NSFilePathErrorKey]),
             harness::Text(missing));
    CHECK_EQ([[[error userInfo] objectForKey:NSUnderlyingErrorKey] code], 2);
    CHECK(reading.read(missing, nullptr) == nil);  // nobody wants to know
    error = nil;
    CHECK(reading.read(root, &error) == nil);
    CHECK_EQ([error code], 256);
    error = nil;
    bool text = strstr(reading.what, "string") != nullptr;
    CHECK((reading.read(latin, &error) == nil) == text);
    CHECK_EQ([error code], text ? 261 : 0);
  }
  [[NSFileManager defaultManager] removeItemAtPath:root error:NULL];
}

TEST(errors_describe_themselves) {
  struct Case {
    NSError* error;
    const char *localized, *description;
  };
  const Case kCases[] = {
      {[NSError errorWithDomain:@"Mine" code:7 userInfo:nil],
       "The operation couldn’t be completed. (Mine error 7.)",
       "Error Domain=Mine Code=7 \"(null)\""},
      {[NSError errorWithDomain:@"Mine" code:7 userInfo:@{NSLocalizedDescriptionKey : @"what"}],
       "what", "Error Domain=Mine Code=7 \"what\" UserInfo={NSLocalizedDescriptionKey=what}"},
      {[NSError errorWithDomain:NSPOSIXErrorDomain code:2 userInfo:nil],
       "The operation couldn’t be completed. No such file or directory",
       "Error Domain=NSPOSIXErrorDomain Code=2 \"No such file or directory\""},
  };
  for (const Case& c : kCases) {
    CHECK_EQ(harness::Text([c.error localizedDescription]), c.localized);
    CHECK_EQ(harness::Text([c.error description]), c.description);
  }
}

TEST(a_process_says_which_macos_this_metal_is) {
  NSProcessInfo* process = [NSProcessInfo processInfo];
  CHECK_EQ([process operatingSystemVersion].majorVersion, 14);
  struct Case {
    NSOperatingSystemVersion version;
    bool expected;
  };
  for (const Case& c :
       {Case{{10, 15, 7}, true}, Case{{13, 6, 1}, true}, Case{{14, 0, 0}, true},
        Case{{14, 0, 1}, false}, Case{{14, 1, 0}, false}, Case{{15, 0, 0}, false}}) {
    CHECK_EQ(bool([process isOperatingSystemAtLeastVersion:c.version]), c.expected);
  }
  CHECK_EQ([process thermalState], NSProcessInfoThermalStateNominal);
  CHECK(![process isLowPowerModeEnabled]);
  BOOL folder = NO;
  NSURL* temporary = [[NSFileManager defaultManager] temporaryDirectory];
  CHECK([[NSFileManager defaultManager] fileExistsAtPath:[temporary path] isDirectory:&folder]);
  CHECK(folder);
}
