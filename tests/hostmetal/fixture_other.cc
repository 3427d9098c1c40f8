// A second library with another function: like a rebuilt file.
#include "hostmetal/msl/metallib_abi.h"

namespace {
uint64_t NoScratch(const metallib_launch*) { return 0; }
void Other(const metallib_launch*, uint64_t, uint64_t, void*) {}
const metallib_kernel kOther = {"other", 0, 1024, 0, 0, nullptr, 0, nullptr, NoScratch, Other};
const metallib_kernel* const kAll[] = {&kOther};
}  // namespace

extern "C" __attribute__((visibility("default")))
const metallib_library metallib_v1 = {METALLIB_MAGIC,
                                      METALLIB_ABI_VERSION,
                                      sizeof(metallib_library),
                                      0,
                                      kAll,
                                      kAll + 1,
                                      "fixture",
                                      "this processor",
                                      nullptr};
