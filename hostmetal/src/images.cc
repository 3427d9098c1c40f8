// <mach-o/getsect.h> and <mach-o/dyld.h> over ELF. A section "__DATA,__x" has that name in the file; where it lies in
// memory the file's table of sections says, as nothing that is loaded does.
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#define HM_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

struct Image {
  std::string path;
  uintptr_t slide = 0, begin = 0;
  std::vector<std::pair<uintptr_t, uintptr_t>> loaded;  // ranges, without the slide
};

std::string ProgramPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, length > 0 ? size_t(length) : 0);
}

std::vector<Image> Images() {
  std::vector<Image> images;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        Image image;
        image.path = info->dlpi_name;
        image.slide = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          if (part.p_offset == 0) image.begin = info->dlpi_addr + part.p_vaddr;
          image.loaded.emplace_back(part.p_vaddr, part.p_vaddr + part.p_memsz);
        }
        static_cast<std::vector<Image>*>(out)->push_back(std::move(image));
        return 0;
      },
      &images);
  if (!images.empty()) images[0].path = ProgramPath();
  return images;
}

struct Found {
  uintptr_t at = 0;  // without the slide
  size_t size = 0;
};

// A whole file, or nothing.
class File {
 public:
  explicit File(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (file >= 0 && fstat(file, &info) == 0 && info.st_size > 0) {
      void* bytes = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (bytes != MAP_FAILED) {
        bytes_ = static_cast<const char*>(bytes);
        size_ = size_t(info.st_size);
      }
    }
    if (file >= 0) close(file);
  }
  ~File() {
    if (bytes_) munmap(const_cast<char*>(bytes_), size_);
  }
  // `count` of T at an offset, nullptr where the file ends before.
  template <typename T>
  const T* At(uint64_t offset, uint64_t count = 1) const {
    if (offset % alignof(T) || offset > size_ || count > (size_ - offset) / sizeof(T)) {
      return nullptr;
    }
    return reinterpret_cast<const T*>(bytes_ + offset);
  }

 private:
  const char* bytes_ = nullptr;
  size_t size_ = 0;
};

bool FindSection(const Image& image, const std::string& name, Found* found) {
  const File file(image.path);
  const auto* head = file.At<ElfW(Ehdr)>(0);
  if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_shentsize != sizeof(ElfW(Shdr))) {
    return false;
  }
  const auto* sections = file.At<ElfW(Shdr)>(head->e_shoff, head->e_shnum);
  if (!sections || head->e_shstrndx >= head->e_shnum) return false;
  const ElfW(Shdr)& names = sections[head->e_shstrndx];
  for (int i = 0; i < head->e_shnum; ++i) {
    const ElfW(Shdr)& s = sections[i];
    const uint64_t length = name.size() + 1;
    if (!(s.sh_flags & SHF_ALLOC) || s.sh_name > names.sh_size ||
        length > names.sh_size - s.sh_name) {
      continue;
    }
    const char* own = file.At<char>(names.sh_offset + s.sh_name, length);
    if (!own || memcmp(own, name.c_str(), length)) continue;
    for (const auto& [begin, end] : image.loaded) {
      if (s.sh_addr < begin || s.sh_addr > end || s.sh_size > end - s.sh_addr) continue;
      *found = {s.sh_addr, s.sh_size};
      return true;
    }
  }
  return false;
}

std::string SectionName(const char* segment, const char* name) {
  return std::string(segment) + "," + name;
}

// The result of a call stays where it is.
template <typename T>
struct Kept {
  std::mutex mutex;
  std::map<std::string, T> all;
};

struct Section {
  char name[16], segment[16];
  uint64_t at, size;
};

}  // namespace

HM_EXPORTED uint8_t* getsectiondata(const void* header, const char* segment, const char* name,
                                    unsigned long* size) {
  for (const Image& image : Images()) {
    Found found;
    if (image.begin != reinterpret_cast<uintptr_t>(header)) continue;
    if (!FindSection(image, SectionName(segment, name), &found)) return nullptr;
    *size = found.size;
    return reinterpret_cast<uint8_t*>(image.slide + found.at);
  }
  return nullptr;
}

HM_EXPORTED const Section* getsectbyname(const char* segment, const char* name) {
  static auto* kept = new Kept<Section>;
  const std::vector<Image> images = Images();
  const std::string whole = SectionName(segment, name);
  Found found;
  if (images.empty() || !FindSection(images[0], whole, &found)) return nullptr;
  std::lock_guard<std::mutex> lock(kept->mutex);
  Section& section = kept->all[whole];
  // Not ended where they fill their places, as in Mach-O.
  strncpy(section.name, name, sizeof section.name);
  strncpy(section.segment, segment, sizeof section.segment);
  section.at = found.at;
  section.size = found.size;
  return &section;
}

HM_EXPORTED char* getsectdata(const char* segment, const char* name, unsigned long* size) {
  const Section* section = getsectbyname(segment, name);
  if (!section) return nullptr;
  *size = section->size;
  return reinterpret_cast<char*>(section->at);
}

HM_EXPORTED int _NSGetExecutablePath(char* path, uint32_t* size) {
  const std::string program = ProgramPath();
  if (*size <= program.size()) {
    *size = uint32_t(program.size() + 1);
    return -1;
  }
  memcpy(path, program.c_str(), program.size() + 1);
  return 0;
}

HM_EXPORTED uint32_t _dyld_image_count() { return uint32_t(Images().size()); }
HM_EXPORTED const void* _dyld_get_image_header(uint32_t index) {
  const std::vector<Image> images = Images();
  return index < images.size() ? reinterpret_cast<const void*>(images[index].begin) : nullptr;
}
HM_EXPORTED intptr_t _dyld_get_image_vmaddr_slide(uint32_t index) {
  const std::vector<Image> images = Images();
  return index < images.size() ? intptr_t(images[index].slide) : 0;
}
HM_EXPORTED const char* _dyld_get_image_name(uint32_t index) {
  static auto* kept = new Kept<std::string>;
  const std::vector<Image> images = Images();
  if (index >= images.size()) return nullptr;
  std::lock_guard<std::mutex> lock(kept->mutex);
  std::string& name = kept->all[images[index].path];
  name = images[index].path;
  return name.c_str();
}
