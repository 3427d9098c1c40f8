// Linked into ops that ask NSBundle where the program is, on Linux only. On macOS the resources of
// a program that is no application lie in the folder of its executable, and ops search for their
// metallib from there (an environment's bin/, then ../lib). GNUstep answers with a folder that does
// not exist, and the search throws.

#import <Foundation/Foundation.h>

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

// As it was called, with symbolic links left alone: a virtual environment's python is a link out of
// the environment.
std::string ProgramFolder() {
  std::ifstream file("/proc/self/cmdline");
  std::string called;
  std::getline(file, called, '\0');
  std::error_code ignored;
  if (called.find('/') == std::string::npos) {
    const char* path = getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string candidate = folder + "/" + called;
      if (access(candidate.c_str(), X_OK) == 0) return std::filesystem::absolute(folder, ignored);
    }
  } else if (access(called.c_str(), X_OK) == 0) {
    return std::filesystem::absolute(called, ignored).parent_path().lexically_normal();
  }
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

}  // namespace

@implementation NSBundle (MetalOpsMainBundle)

- (NSString*)resourcePath {
  if (self == [NSBundle mainBundle]) {
    static const std::string folder = ProgramFolder();
    return [NSString stringWithUTF8String:folder.c_str()];
  }
  return [[self bundlePath] stringByAppendingPathComponent:@"Resources"];
}

@end
