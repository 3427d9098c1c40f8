// The file of an MTLBinaryArchive.
#ifndef HOSTMETAL_SRC_ARCHIVE_FILE_H_
#define HOSTMETAL_SRC_ARCHIVE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hostmetal {

// A function that the archive has.
struct ArchiveEntry {
  std::string library;    // Module::Identity()
  std::string function;   // its name
  std::string constants;  // the values of its function constants
  // The .metallib with its code; nullptr where its library has that.
  std::shared_ptr<const std::string> code;
};

std::string WriteArchive(const std::vector<ArchiveEntry>& entries);
// The error in the bytes, as the end of a sentence, or "".
std::string ReadArchive(std::string_view bytes, std::vector<ArchiveEntry>* entries);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_ARCHIVE_FILE_H_
