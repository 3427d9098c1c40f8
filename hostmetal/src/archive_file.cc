// The file of an MTLBinaryArchive: a header, the .metallibs, the functions, and a digest of it all.
#include "hostmetal/src/archive_file.h"

#include <string.h>

#include <map>

#include "hostmetal/msl/metallib_abi.h"
#include "hostmetal/src/digest.h"

namespace hostmetal {
namespace {

constexpr std::string_view kMagic = "HMARCHV1";
constexpr size_t kDigest = 16;
constexpr uint32_t kNoCode = UINT32_MAX;

template <typename T>
void Put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutText(std::string* out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out->append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }
  template <typename T>
  T Get() {
    T value{};
    std::string_view bytes = Take(sizeof value);
    if (ok_) memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view Text() { return Take(Get<uint64_t>()); }

 private:
  std::string_view Take(uint64_t size) {
    ok_ &= size <= rest_.size();
    if (!ok_) return {};
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

std::string WriteArchive(const std::vector<ArchiveEntry>& entries) {
  std::map<std::shared_ptr<const std::string>, uint32_t> numbers;
  std::vector<const std::string*> codes;
  for (const ArchiveEntry& entry : entries) {
    if (entry.code && numbers.emplace(entry.code, uint32_t(codes.size())).second) {
      codes.push_back(entry.code.get());
    }
  }
  std::string out(kMagic);
  Put<uint32_t>(&out, METALLIB_ABI_VERSION);
  Put<uint32_t>(&out, uint32_t(codes.size()));
  for (const std::string* code : codes) PutText(&out, *code);
  Put<uint32_t>(&out, uint32_t(entries.size()));
  for (const ArchiveEntry& entry : entries) {
    PutText(&out, entry.library);
    PutText(&out, entry.function);
    PutText(&out, entry.constants);
    Put<uint32_t>(&out, entry.code ? numbers[entry.code] : kNoCode);
  }
  Digest digest;
  digest.Bytes(out);
  return out + digest.Value();
}

std::string ReadArchive(std::string_view bytes, std::vector<ArchiveEntry>* entries) {
  if (bytes.substr(0, kMagic.size()) != kMagic) return "is no binary archive of hostmetal";
  const std::string damaged = "is damaged, or was not written to its end";
  if (bytes.size() < kMagic.size() + kDigest) return damaged;
  const std::string_view content = bytes.substr(0, bytes.size() - kDigest);
  Digest digest;
  digest.Bytes(content);
  if (digest.Value() != bytes.substr(content.size())) return damaged;
  Reader reader(content.substr(kMagic.size()));
  const uint32_t version = reader.Get<uint32_t>();
  if (version != METALLIB_ABI_VERSION) {
    return "was made for ABI " + std::to_string(version) + ", this runtime has " +
           std::to_string(METALLIB_ABI_VERSION) + "; make it again";
  }
  std::vector<std::shared_ptr<const std::string>> codes;
  for (uint32_t n = reader.Get<uint32_t>(); n > 0 && reader.ok(); --n) {
    codes.push_back(std::make_shared<const std::string>(reader.Text()));
  }
  for (uint32_t n = reader.Get<uint32_t>(); n > 0 && reader.ok(); --n) {
    ArchiveEntry entry;
    entry.library = reader.Text();
    entry.function = reader.Text();
    entry.constants = reader.Text();
    const uint32_t code = reader.Get<uint32_t>();
    if (code != kNoCode && code >= codes.size()) return damaged;
    if (code != kNoCode) entry.code = codes[code];
    entries->push_back(std::move(entry));
  }
  return reader.done() ? "" : damaged;
}

}  // namespace hostmetal
