// Reads just enough of an ELF file to refuse a file that is no Metal library. Every offset in it
// may be wrong.
#include "hostmetal/src/cpu/elf.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

#include <array>
#include <vector>

#include "hostmetal/msl/metallib_abi.h"

namespace hostmetal {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr char kCut[] = "is damaged or was cut off; compile it again";

// zlib's and PNG's CRC-32.
uint32_t Crc32(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes) crc = table[(crc ^ byte) & 255] ^ crc >> 8;
  return ~crc;
}

// `count` records of a file; none where they do not lie in it.
template <typename T>
std::vector<T> Records(std::string_view bytes, uint64_t offset, uint64_t count) {
  if (offset > bytes.size() || count > (bytes.size() - offset) / sizeof(T)) return {};
  std::vector<T> records(count);
  if (count) memcpy(records.data(), bytes.data() + offset, count * sizeof(T));
  return records;
}

// The text at `offset` of a table of strings, "" where there is none.
std::string_view Text(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  table.remove_prefix(offset);
  size_t end = table.find('\0');
  return end == table.npos ? std::string_view() : table.substr(0, end);
}

// Where in the file a range of the loaded library comes from.
bool FileOffset(const std::vector<Elf64_Phdr>& segments, uint64_t address, uint64_t size,
                uint64_t* offset) {
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type != PT_LOAD || address < s.p_vaddr) continue;
    uint64_t at = address - s.p_vaddr;
    if (at > s.p_filesz || size > s.p_filesz - at) continue;
    *offset = s.p_offset + at;
    return true;
  }
  return false;
}

std::string WhyNoConstructors(const std::vector<Elf64_Dyn>& entries, std::string_view strings) {
  for (const Elf64_Dyn& entry : entries) {
    switch (entry.d_tag) {
      case DT_NULL:
        return "";
      case DT_INIT:
      case DT_FINI:
      case DT_INIT_ARRAYSZ:
      case DT_FINI_ARRAYSZ:
      case DT_PREINIT_ARRAYSZ:
        if (entry.d_un.d_val) {
          return "is a shared object with code that runs when it is loaded; a Metal library has "
                 "none";
        }
        break;
      case DT_AUDIT:
      case DT_DEPAUDIT:
      case DT_AUXILIARY:
      case DT_FILTER:
        return "is a shared object that loads others; a Metal library does not";
      case DT_NEEDED: {
        std::string_view name = Text(strings, entry.d_un.d_val);
        if (name != "libc.so.6" && name != "libm.so.6" && name.substr(0, 8) != "ld-linux") {
          return "is a shared object that needs '" + std::string(name) +
                 "'; a Metal library needs libc and libm alone";
        }
        break;
      }
    }
  }
  return kCut;  // no end
}

}  // namespace

std::string WhyNoMetallib(std::string_view bytes) {
  if (bytes.substr(0, 4) == "MTLB") {
    return "is a macOS library; compile its source for Linux with 'python -m metal_ops metal'";
  }
  if (bytes.substr(0, SELFMAG) != ELFMAG) return "is not a compiled Metal library";
  auto headers = Records<Elf64_Ehdr>(bytes, 0, 1);
  if (headers.empty()) return kCut;
  const Elf64_Ehdr& header = headers[0];
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine) {
    return "was compiled for another processor (ELF machine " + std::to_string(header.e_machine) +
           ", class " + std::to_string(header.e_ident[EI_CLASS]) + "; this one is " +
           std::to_string(kMachine) + ", class 2); compile it here";
  }
  if (header.e_type != ET_DYN) {
    return "is an ELF file of type " + std::to_string(header.e_type) +
           ", not a library; link .air files with 'python -m metal_ops metal metallib'";
  }

  auto segments = Records<Elf64_Phdr>(bytes, header.e_phoff, header.e_phnum);
  auto sections = Records<Elf64_Shdr>(bytes, header.e_shoff, header.e_shnum);
  if (segments.empty() || sections.empty() || header.e_phentsize != sizeof(Elf64_Phdr) ||
      header.e_shentsize != sizeof(Elf64_Shdr)) {
    return kCut;
  }
  std::vector<Elf64_Dyn> dynamic;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_offset > bytes.size() || s.p_filesz > bytes.size() - s.p_offset) return kCut;
    if (s.p_type == PT_INTERP) return "is a program, not a compiled Metal library";
    if (s.p_type == PT_DYNAMIC && dynamic.empty()) {
      dynamic = Records<Elf64_Dyn>(bytes, s.p_offset, s.p_filesz / sizeof(Elf64_Dyn));
    }
  }
  const Elf64_Shdr* exported = nullptr;
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type == SHT_DYNSYM) exported = &s;
  }
  if (!exported || exported->sh_link >= sections.size()) return kCut;
  const Elf64_Shdr& names = sections[exported->sh_link];
  if (names.sh_offset > bytes.size() || names.sh_size > bytes.size() - names.sh_offset) return kCut;
  std::string_view strings = bytes.substr(names.sh_offset, names.sh_size);

  bool found = false;
  for (const Elf64_Sym& symbol :
       Records<Elf64_Sym>(bytes, exported->sh_offset, exported->sh_size / sizeof(Elf64_Sym))) {
    if (symbol.st_shndx == SHN_UNDEF || Text(strings, symbol.st_name) != METALLIB_SYMBOL) continue;
    uint64_t at = 0;
    uint32_t magic = 0;
    if (!FileOffset(segments, symbol.st_value, sizeof(metallib_library), &at)) return kCut;
    memcpy(&magic, bytes.data() + at, sizeof magic);
    found = magic == METALLIB_MAGIC;
  }
  if (!found) return "is a shared object but not a Metal library";
  std::string why = WhyNoConstructors(dynamic, strings);
  if (!why.empty()) return why;

  metallib_trailer trailer = {};
  std::string_view content = bytes.substr(0, bytes.size() - sizeof trailer);
  memcpy(&trailer, bytes.data() + content.size(), sizeof trailer);
  bool sealed = memcmp(trailer.magic, METALLIB_TRAILER_MAGIC, sizeof trailer.magic) == 0 &&
                trailer.reserved == 0;
  return sealed && trailer.crc32 == Crc32(content) ? "" : kCut;
}

}  // namespace hostmetal
