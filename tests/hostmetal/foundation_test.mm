// hostmetal's corrections of GNUstep: see hostmetal/src/foundation.mm and file_manager.mm.
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

// Bytes above 127 in strings declared as ASCII are Latin-1's, as on a Mac, however the string is
// made.
TEST(strings_of_ascii_take_other_bytes) {
  const char kBytes[] = "gr\xfc\xdf";
  NSData* data = [NSData dataWithBytes:kBytes length:4];
  const NSStringEncoding ascii = NSASCIIStringEncoding;
  NSMutableString* changed = [NSMutableString stringWithCString:kBytes encoding:ascii];
  [changed appendString:@"e"];
  CHECK_EQ(harness::Text(changed), "grüße");
  NSString* const kStrings[] = {
      [NSString stringWithCString:kBytes encoding:ascii],
      [[[NSString alloc] initWithCString:kBytes encoding:ascii] autorelease],
      [[[NSString alloc] initWithBytes:kBytes length:4 encoding:ascii] autorelease],
      [[[NSString alloc] initWithBytesNoCopy:(void*)kBytes length:4 encoding:ascii
                                freeWhenDone:NO] autorelease],
      [[[NSString alloc] initWithData:data encoding:ascii] autorelease],
      [[[NSMutableString alloc] initWithData:data encoding:ascii] autorelease],
  };
  for (NSString* string : kStrings) CHECK_EQ(harness::Text(string), "grüß");
  CHECK_EQ(harness::Text([NSString stringWithCString:"plain" encoding:ascii]), "plain");
  CHECK_EQ([[NSString stringWithCString:"" encoding:ascii] length], 0u);
  CHECK([NSString stringWithCString:kBytes encoding:NSUTF8StringEncoding] == nil);
  CHECK([@"gr\u00fc\u00df" dataUsingEncoding:ascii] == nil);
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
    CHECK(reading.read(missing, nullptr) == nil);  // no error object is asked for
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

// Files that cannot be written, removed, copied, moved, made or listed give the errors of a Mac.
TEST(files_that_cannot_be_changed_are_errors) {
  NSFileManager* files = [NSFileManager defaultManager];
  NSString* root = NewFolder();
  NSString* name = [root lastPathComponent];
  NSString* there = [root stringByAppendingPathComponent:@"there"];
  NSString* missing = [root stringByAppendingPathComponent:@"no/a.txt"];
  NSString* data = [root stringByAppendingPathComponent:@"no/b.bin"];
  NSError* error = nil;
  CHECK([@"text" writeToFile:there atomically:YES encoding:NSUTF8StringEncoding error:&error]);
  CHECK(error == nil);
  struct Case {
    BOOL done;
    long code;
    NSString* words;
  };
  // From a class of the cluster that was in use before.
  NSString* made = [NSString stringWithFormat:@"%d", 7];
  NSError* errors[12] = {};
  const Case kCases[] = {
      {[@"text" writeToFile:missing atomically:YES encoding:NSUTF8StringEncoding error:&errors[0]],
       4, @"The folder “a.txt” doesn’t exist."},
      {[@"gr\u00fcn" writeToFile:there
                      atomically:NO
                        encoding:NSASCIIStringEncoding
                           error:&errors[1]],
       517, @"The text can’t be written in the text encoding that was asked for."},
      {[[NSData data] writeToFile:data options:NSDataWritingAtomic error:&errors[2]], 4,
       @"The folder “b.bin” doesn’t exist."},
      {[made writeToFile:missing atomically:NO encoding:NSUTF8StringEncoding error:&errors[3]], 4,
       @"The folder “a.txt” doesn’t exist."},
      {[files removeItemAtPath:missing error:&errors[4]], 4, @"“a.txt” couldn’t be removed."},
      {[files copyItemAtPath:missing toPath:data error:&errors[5]], 260,
       @"The file “a.txt” couldn’t be opened because there is no such file."},
      {[files copyItemAtPath:there toPath:there error:&errors[6]], 516,
       [NSString
           stringWithFormat:
               @"“there” couldn’t be copied to “%@” because an item with the same name already "
               @"exists.",
               name]},
      {[files moveItemAtPath:missing toPath:data error:&errors[7]], 4,
       @"“a.txt” couldn’t be moved to “no” because either the former doesn’t exist, or the folder "
       @"containing the latter "
       @"doesn’t exist."},
      {[files contentsOfDirectoryAtPath:missing error:&errors[8]] != nil, 260,
       @"The folder “a.txt” doesn’t exist."},
      {[files createDirectoryAtPath:missing
           withIntermediateDirectories:NO
                            attributes:nil
                                 error:&errors[9]],
       4, @"The folder “a.txt” doesn’t exist."},
      {[files createDirectoryAtPath:there
           withIntermediateDirectories:NO
                            attributes:nil
                                 error:&errors[10]],
       516,
       [NSString stringWithFormat:@"The file “there” couldn’t be saved in the folder “%@” because "
                                  @"a file with the same "
                                  @"name already exists.",
                                  name]},
      {[files attributesOfItemAtPath:missing error:&errors[11]] != nil, 260,
       @"The file “a.txt” couldn’t be opened because there is no such file."},
  };
  int number = 0;
  for (const Case& c : kCases) {
    CHECK(!c.done);
    CHECK_EQ(harness::Text([errors[number] localizedDescription]), harness::Text(c.words));
    CHECK_EQ(harness::Text([errors[number] domain]), "NSCocoaErrorDomain");
    CHECK_EQ(long([errors[number] code]), c.code);
    ++number;
  }
  CHECK(![files removeItemAtPath:missing error:nullptr]);  // no error object is asked for
  CHECK_EQ([[[errors[0] userInfo] objectForKey:NSUnderlyingErrorKey] code], 2);
  // Successes leave no error.
  NSString* copy = [root stringByAppendingPathComponent:@"copy"];
  error = nil;
  CHECK([files copyItemAtPath:there toPath:copy error:&error]);
  CHECK([files createDirectoryAtPath:[root stringByAppendingPathComponent:@"x/y"]
         withIntermediateDirectories:YES
                          attributes:nil
                               error:&error]);
  CHECK_EQ([[files contentsOfDirectoryAtPath:root error:&error] count], 3);
  CHECK([files removeItemAtPath:root error:&error]);
  CHECK(error == nil);
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
  CHECK_EQ([process operatingSystemVersion].majorVersion, 15);
  CHECK_EQ(harness::Text([process operatingSystemVersionString]), "Version 15.0");
  struct Case {
    NSOperatingSystemVersion version;
    bool expected;
  };
  for (const Case& c :
       {Case{{10, 15, 7}, true}, Case{{14, 6, 1}, true}, Case{{15, 0, 0}, true},
        Case{{15, 0, 1}, false}, Case{{15, 1, 0}, false}, Case{{26, 0, 0}, false}}) {
    CHECK_EQ(bool([process isOperatingSystemAtLeastVersion:c.version]), c.expected);
  }
  CHECK_EQ([process thermalState], NSProcessInfoThermalStateNominal);
  CHECK(![process isLowPowerModeEnabled]);
  BOOL folder = NO;
  NSURL* temporary = [[NSFileManager defaultManager] temporaryDirectory];
  CHECK([[NSFileManager defaultManager] fileExistsAtPath:[temporary path] isDirectory:&folder]);
  CHECK(folder);
}
