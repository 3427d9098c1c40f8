// <mach/mach.h>: how much memory the machine and this process have, by /proc.
#include <mach/mach.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HM_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

// Kilobytes of a line "<name>: 123 kB", 0 where there is none.
uint64_t Kilobytes(const char* text, const char* name) {
  const char* at = strstr(text, name);
  unsigned long long found = 0;
  return at && sscanf(at + strlen(name), ": %llu", &found) == 1 ? found : 0;
}

// A file of /proc, which may be longer than the wanted part.
template <size_t kSize>
bool ReadText(const char* path, char (&text)[kSize]) {
  FILE* file = fopen(path, "r");
  if (!file) return false;
  text[fread(text, 1, kSize - 1, file)] = 0;
  fclose(file);
  return true;
}

// A caller built for fewer fields gets these.
template <typename T>
kern_return_t Give(const T& found, integer_t* info, mach_msg_type_number_t* count) {
  const mach_msg_type_number_t all = sizeof found / sizeof *info;
  if (*count > all) *count = all;
  memcpy(info, &found, *count * sizeof *info);
  return KERN_SUCCESS;
}

}  // namespace

HM_EXPORTED kern_return_t host_page_size(host_t host, vm_size_t* size) {
  if (host != mach_host_self()) return KERN_INVALID_ARGUMENT;
  *size = vm_page_size;
  return KERN_SUCCESS;
}

HM_EXPORTED kern_return_t host_statistics64(host_t host, host_flavor_t flavor, host_info64_t info,
                                            mach_msg_type_number_t* count) {
  char text[8192];
  if (host != mach_host_self() || flavor != HOST_VM_INFO64) return KERN_INVALID_ARGUMENT;
  if (!ReadText("/proc/meminfo", text)) return KERN_INVALID_ARGUMENT;
  const auto pages = [&](const char* name) {
    return natural_t(Kilobytes(text, name) * 1024 / vm_page_size);
  };
  vm_statistics64_data_t found = {};
  found.free_count = pages("MemFree");
  found.active_count = pages("\nActive");
  found.inactive_count = pages("\nInactive");
  found.wire_count = pages("\nUnevictable") + pages("\nSUnreclaim");
  found.external_page_count = pages("\nCached");
  found.internal_page_count = pages("\nAnonPages");
  return Give(found, info, count);
}

HM_EXPORTED kern_return_t task_info(task_t task, task_flavor_t flavor, task_info_t info,
                                    mach_msg_type_number_t* count) {
  char text[4096];
  if (task != mach_task_self()) return KERN_INVALID_ARGUMENT;
  if (!ReadText("/proc/self/status", text)) return KERN_INVALID_ARGUMENT;
  const auto bytes = [&](const char* name) { return Kilobytes(text, name) * 1024; };
  if (flavor == MACH_TASK_BASIC_INFO) {
    mach_task_basic_info_data_t found = {bytes("VmSize"), bytes("VmRSS"), bytes("VmHWM")};
    return Give(found, info, count);
  }
  if (flavor != TASK_VM_INFO) return KERN_INVALID_ARGUMENT;
  // Pages with files behind them can be read again, and are not the process' own.
  task_vm_info_data_t found = {bytes("VmSize"), bytes("VmRSS"), bytes("VmHWM"),
                               bytes("RssAnon") + bytes("RssShmem")};
  return Give(found, info, count);
}
