// [NSBundle mainBundle] of a program outside a bundle, as on a Mac.
#include <sys/auxv.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/hostmetal/harness.h"

TEST(main_bundle_is_the_programs_folder) {
  std::string program(reinterpret_cast<const char*>(getauxval(AT_EXECFN)));
  std::string folder = std::filesystem::absolute(program).lexically_normal().parent_path();
  NSBundle* bundle = [NSBundle mainBundle];
  CHECK_EQ(harness::Text([bundle resourcePath]), folder);
  CHECK_EQ(harness::Text([bundle bundlePath]), folder);
  CHECK([bundle pathForResource:@"no_such" ofType:@"metallib"] == nil);
  std::string file = folder + "/bundled.metallib";
  std::ofstream(file) << "x";
  CHECK_EQ(harness::Text([bundle pathForResource:@"bundled" ofType:@"metallib"]), file);
  CHECK_EQ(harness::Text([bundle pathForResource:@"bundled.metallib" ofType:nil]), file);
  // How published ops look for their library.
  bool found = false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string([[bundle resourcePath] UTF8String]))) {
    found |= entry.path().filename() == "bundled.metallib";
  }
  CHECK(found);
  unlink(file.c_str());
}
