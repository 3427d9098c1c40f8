"""Headers and functions that programs that compute with Metal use beside it, and the words for missing
ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from metal_ops.build import objc
from tests.hosts.test_hosts import cmake, command, metal_ops, right, toolchain
from tests.suites import at_depth

__all__ = ["toolchain"]  # a fixture
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has all of this itself")

NUMBERS = r"""
static void numbers(void) {
  struct { CFNumberType as; long long whole; double part; int fits; long long got; } cases[] = {
    {kCFNumberSInt8Type, 127, 0, 1, 127},     {kCFNumberSInt8Type, 300, 0, 0, 44},
    {kCFNumberIntType, -7, 0, 1, -7},         {kCFNumberSInt64Type, 1LL << 40, 0, 1, 1LL << 40},
    {kCFNumberSInt32Type, 0, 2.5, 0, 2},      {kCFNumberSInt32Type, 0, 1e10, 0, 2147483647},
    {kCFNumberLongType, 0, -4.0, 1, -4},
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); ++i) {
    CFNumberRef n = cases[i].part ? CFNumberCreate(NULL, kCFNumberDoubleType, &cases[i].part)
                                  : CFNumberCreate(NULL, kCFNumberLongLongType, &cases[i].whole);
    long long got = 0;
    int32_t four = 0;
    int8_t one = 0;
    int fits = CFNumberGetValue(n, cases[i].as, cases[i].as == kCFNumberSInt8Type    ? (void*)&one
                                                : cases[i].as == kCFNumberSInt32Type ||
                                                          cases[i].as == kCFNumberIntType
                                                    ? (void*)&four
                                                    : (void*)&got);
    got += four + one;
    if (fits != cases[i].fits || got != cases[i].got) printf("number %d: %d %lld\n", i, fits, got);
    CFRelease(n);
  }
  double big = 9007199254740993.0;
  long long odd = 9007199254740993LL;
  CFNumberRef n = CFNumberCreate(NULL, kCFNumberSInt64Type, &odd);
  printf("%d %d %d ", CFNumberGetValue(n, kCFNumberDoubleType, &big), CFNumberIsFloatType(n),
         (int)CFNumberGetByteSize(n));
  CFRelease(n);
  const void* keys[] = {CFSTR("a"), CFSTR("b")};
  const void* values[] = {kCFBooleanTrue, CFSTR("x")};
  CFDictionaryRef d = CFDictionaryCreate(NULL, keys, values, 2, &kCFTypeDictionaryKeyCallBacks,
                                         &kCFTypeDictionaryValueCallBacks);
  CFTypeRef a = CFDictionaryGetValue(d, CFSTR("a")), b = CFDictionaryGetValue(d, keys[1]);
  printf("%d%d%d%d %d %d\n", CFGetTypeID(a) == CFBooleanGetTypeID(), CFGetTypeID(a) == CFNumberGetTypeID(),
         CFGetTypeID(b) == CFStringGetTypeID(), CFGetTypeID(d) == CFDictionaryGetTypeID(),
         CFBooleanGetValue((CFBooleanRef)a), CFDictionaryContainsKey(d, CFSTR("c")));
  CFRelease(d);
}
"""
NEAR = (
    r"""
#import <Foundation/Foundation.h>
#import <IOKit/IOKitLib.h>
#import <MetalPerformanceShaders/MetalPerformanceShaders.h>
#include <fcntl.h>
#include <mach-o/dyld.h>
#include <mach-o/getsect.h>
#include <mach/mach.h>
#include <mach/mach_time.h>
#include <sys/sysctl.h>
#include <time.h>
"""
    + NUMBERS
    + r"""
static int cores(const char* name) {
  int32_t count = 0;
  io_service_t entry = IOServiceGetMatchingService(kIOMainPortDefault, IOServiceMatching(name));
  if (!entry) return -1;
  CFTypeRef found = IORegistryEntryCreateCFProperty(entry, CFSTR("gpu-core-count"), kCFAllocatorDefault, 0);
  if (found && CFGetTypeID(found) == CFNumberGetTypeID()) {
    CFNumberGetValue((CFNumberRef)found, kCFNumberSInt32Type, &count);
  }
  if (found) CFRelease(found);
  IOObjectRelease(entry);
  return count;
}

static void registry(id<MTLDevice> device) {
  io_iterator_t all = 0;
  IOServiceGetMatchingServices(kIOMainPortDefault, IORegistryEntryIDMatching(device.registryID), &all);
  io_service_t one = IOIteratorNext(all), two = IOIteratorNext(all);
  uint64_t number = 0;
  IORegistryEntryGetRegistryEntryID(one, &number);
  CFTypeRef model = IORegistryEntrySearchCFProperty(one, kIOServicePlane, CFSTR("model"), NULL, 0);
  printf("%d %d %d %d ", cores("AGXAccelerator"), cores("IOPCIDevice"), number == device.registryID, two == 0);
  printf("%d %d\n", CFEqual(model, (__bridge CFTypeRef)device.name),
         IOObjectRelease(one) == 0 && IOObjectRelease(one) != 0);
  CFRelease(model);
  IOObjectRelease(all);
}

static void parts(id<MTLDevice> device) {
  id<MTLBuffer> buffer = [device newBufferWithLength:8 options:MTLResourceStorageModeShared];
  id<MTLCommandQueue> queue = [device newCommandQueue];
  MPSCommandBuffer* commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
  MPSCommandBuffer* outer = [MPSCommandBuffer commandBufferWithCommandBuffer:commands];
  id<MTLCommandBuffer> first = outer.rootCommandBuffer;
  for (int i = 0; i < 2; ++i) {
    if (i) [outer commitAndContinue];
    id<MTLBlitCommandEncoder> blit = [outer blitCommandEncoder];
    [blit fillBuffer:buffer range:NSMakeRange(4 * i, 4) value:(uint8_t)(i + 1)];
    [blit endEncoding];
  }
  [outer commit];
  [outer waitUntilCompleted];
  printf("%d%d %d%d%d%d %d\n", ((char*)buffer.contents)[3], ((char*)buffer.contents)[4],
         first.status == MTLCommandBufferStatusCompleted, outer.status == MTLCommandBufferStatusCompleted,
         outer.rootCommandBuffer != first, commands.commandBuffer == outer.rootCommandBuffer,
         MPSSupportsMTLDevice(device));
}

static void sections(id<MTLDevice> device) {
  unsigned long size = 0;
  uint8_t* data = getsectiondata(&_mh_execute_header, "__TEXT", "__metallib", &size);
  dispatch_data_t bytes = dispatch_data_create(data, size, NULL, ^{});
  id<MTLLibrary> library = [device newLibraryWithData:bytes error:NULL];
  printf("%s ", [library.functionNames.firstObject UTF8String]);
  data = getsectiondata(&_mh_execute_header, "__DATA", "__own_text", &size);
  const struct section_64* same = getsectbyname("__DATA", "__own_text");
  printf("%.*s %d ", (int)size, data, same->addr + _dyld_get_image_vmaddr_slide(0) == (uintptr_t)data);
  data[0] = 'O';  // of __DATA
  printf("%d %d\n", getsectiondata(&_mh_execute_header, "__DATA", "__none", &size) == NULL,
         _dyld_get_image_header(0) == (const struct mach_header*)&_mh_execute_header);
}

static void system_calls(void) {
  char path[4096], small[2];
  uint32_t size = sizeof small, whole = sizeof path;
  int short_of = _NSGetExecutablePath(small, &size), found = _NSGetExecutablePath(path, &whole);
  int file = open(path, O_RDONLY);
  struct radvisory ahead = {0, 4096};
  char name[PATH_MAX];
  int advised = fcntl(file, F_RDADVISE, &ahead), closed = fcntl(-1, F_RDADVISE, &ahead);
  int same = fcntl(file, F_GETPATH, name) == 0 && !strcmp(name, path);
  printf("%d %d %d %d %d %d ", short_of, size == strlen(path) + 1, found, advised, closed, same);
  printf("%d %d\n", (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY,
         fcntl(file, F_NOCACHE, 1));
  close(file);
  uint64_t began = mach_absolute_time();
  mach_wait_until(began + 1000);
  printf("%d %d\n", mach_absolute_time() >= began + 1000 && mach_continuous_time() >= began,
         clock_gettime_nsec_np(CLOCK_UPTIME_RAW) >= began);
}

static void memory(void) {
  vm_statistics64_data_t all;
  struct mach_task_basic_info task;
  task_vm_info_data_t own;
  mach_msg_type_number_t of_all = HOST_VM_INFO64_COUNT, of_task = MACH_TASK_BASIC_INFO_COUNT;
  mach_msg_type_number_t of_own = TASK_VM_INFO_COUNT;
  vm_size_t page = 0;
  int64_t whole = 0;
  char name[256];
  size_t length = sizeof whole, of_name = sizeof name, none = 0;
  host_page_size(mach_host_self(), &page);
  sysctlbyname("hw.memsize", &whole, &length, NULL, 0);
  int failed = host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&all, &of_all) |
               task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&task, &of_task) |
               task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&own, &of_own);
  uint64_t pages = (uint64_t)all.free_count + all.active_count + all.inactive_count + all.wire_count;
  printf("%d %d %d %d ", failed, pages * page > (uint64_t)whole / 2, pages * page <= (uint64_t)whole * 2,
         task.resident_size >= own.phys_footprint && own.phys_footprint > 100000);
  printf("%d %d %d\n", task_info(mach_task_self(), 77, (task_info_t)&own, &of_own) == KERN_INVALID_ARGUMENT,
         sysctlbyname("machdep.cpu.brand_string", name, &of_name, NULL, 0) == 0 && of_name == strlen(name) + 1,
         sysctlbyname("kern.osproductversion", NULL, &none, NULL, 0) == 0 && none == 5);
}

int main(void) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    memory();
    numbers();
    registry(device);
    parts(device);
    sections(device);
    system_calls();
  }
  return 0;
}
"""
)
NEAR_PRINTS = [
    "0 1 1 1 1 1 1",
    "0 0 8 1011 1 0",
    "3 -1 1 1 1 1",
    "12 1111 0",
    "twice own text 1 1 1",
    "-1 1 0 0 -1 1 1 0",
    "1 1",
]


@pytest.mark.parametrize(
    ("name", "options"),
    [("near.m", []), ("near.mm", ["-fobjc-arc", "-D__APPLE__"])],
    ids=["C", "C++ with ARC"],
)
def test_what_lies_near_metal(tmp_path: Path, name: str, options: list[str]) -> None:
    (tmp_path / name).write_text(NEAR)
    (tmp_path / "own text.txt").write_text("own text")
    (tmp_path / "twice.metal").write_text("kernel void twice(device float* x) { x[0] *= 2; }\n")
    right(metal_ops("metal", "twice.metal", "-o", "twice.metallib", cwd=tmp_path))
    words = (
        *("objc", "-Wall", "-Werror", *options, name, "-Wl,--gc-sections", "-o", "near"),
        "-Wl,-sectcreate,__TEXT,__metallib,twice.metallib,-framework,IOKit",
        *("-sectcreate", "__DATA", "__own_text", "own text.txt"),
        *("-framework", "MetalPerformanceShaders"),
    )
    right(metal_ops(*words, cwd=tmp_path))
    printed = right(command("./near", cwd=tmp_path, HOSTMETAL_NUM_THREADS="3"))
    assert printed.splitlines() == NEAR_PRINTS


SMALL = r"""
#include <libkern/OSByteOrder.h>
#include <malloc/malloc.h>
#include <os/log.h>
#include <os/signpost.h>
#include <stdio.h>
static int calls = 0;
static int called(void) { return ++calls; }
int main(void) {
  os_log_t log = os_log_create("of", "tests");
  os_log(log, "%{public}s %d", "x", called());
  os_log_error(OS_LOG_DEFAULT, "only words");
  os_signpost_id_t id = os_signpost_id_generate(log);
  os_signpost_interval_begin(log, id, "step");
  os_signpost_event_emit(log, OS_SIGNPOST_ID_EXCLUSIVE, "event", "%d", called());
  if (os_log_type_enabled(log, OS_LOG_TYPE_FAULT)) called();
  os_signpost_interval_end(log, id, "step", "%d", called());
  void* block = malloc(100);
  printf("%d %d %d ", calls, id == OS_SIGNPOST_ID_NULL, malloc_size(block) >= 100);
  free(block);
  uint8_t one[8] = {1, 2};
  uint16_t two = *(uint16_t*)one;
  printf("%x %x %x ", OSSwapBigToHostInt16(two), OSSwapLittleToHostInt16(two), OSSwapInt32(0x01020304u));
  printf("%d\n", OSSwapHostToBigInt64(OSSwapBigToHostInt64(7ull)) == 7);
  return 0;
}
"""


@pytest.mark.parametrize("name", ["small.c", "small.mm"])
def test_small_headers(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(SMALL)
    arc = ["-fobjc-arc"] * name.endswith("mm")
    right(metal_ops("objc", "-Wall", "-Wextra", "-Werror", *arc, name, "-o", "small", cwd=tmp_path))
    assert right(command("./small", cwd=tmp_path)) == "0 1 1 102 201 4030201 1\n"


# header: what a Mac's C++ library has behind it, of which nothing else is included. (Facts of libc++'s list.)
BROUGHT = {
    "iostream": "std::memcpy(a, b, 4); std::sort(a, a + 4); std::function<int()> f; std::vector<int> v;",
    "random": "std::memcpy(a, b, 4); std::uint32_t u = 3; a[0] = int(u);",
    "span": "a[0] = int(std::sqrt(4.0)); std::memset(b, 0, 4);",
    "string": "a[0] = int(std::sqrt(4.0)) + std::abs(-1); std::memset(b, 0, 4);",
    "vector": 'a[0] = std::numeric_limits<int>::max(); std::memcpy(a, b, 4); std::printf("");',
    "array": "std::memcpy(a, b, 4); a[0] = int(std::floor(1.5)) + std::tolower('A');",
    "map": "std::memcpy(a, b, 4); std::unique_ptr<int> p; a[0] = INT_MAX;",
    "functional": "std::memcpy(a, b, 4); a[0] = int(std::exp(0.0));",
    "fstream": 'std::memcpy(a, b, 4); std::sort(a, a + 4); throw std::runtime_error("");',
    "sstream": "std::memcpy(a, b, 4); std::vector<int> v; a[0] = int(std::pow(2.0, 3.0));",
    "chrono": "std::memcpy(a, b, 4); std::time_t t = 0; a[0] = int(t);",
    "memory": 'std::memcpy(a, b, 4); a[0] = std::atoi("1");',
    "thread": "std::memcpy(a, b, 4);",
    "any": "std::memcpy(a, b, 4);",
    "atomic": "std::memcpy(a, b, 4); a[0] = int(std::sqrt(4.0)); std::uint32_t u = 3; a[0] = int(u);",
    "charconv": "std::memcpy(a, b, 4); a[0] = int(std::sqrt(4.0));",
    "forward_list": "std::memcpy(a, b, 4);",
    "numeric": "std::memcpy(a, b, 4); a[0] = int(std::sqrt(4.0));",
    "tuple": "a[0] = int(std::sqrt(4.0)) + std::abs(-1);",
    "utility": "a[0] = int(std::sqrt(4.0)) + std::abs(-1);",
    "optional": "std::memcpy(a, b, 4);",
}


def test_what_headers_of_cpp_bring(tmp_path: Path) -> None:
    """As of C++20 libstdc++'s headers include each other otherwise."""
    for header, text in BROUGHT.items():
        (tmp_path / f"{header}.cpp").write_text(
            f"#include <{header}>\nvoid use(int* a, int* b) {{ {text} }}\n"
        )
    some = at_depth(("array", "fstream", "map", "memory", "span", "vector"), BROUGHT)
    for standard, headers in {"17": some, "20": ("iostream", "string")}.items():
        names = [f"{header}.cpp" for header in headers]
        right(metal_ops("objc", f"-std=c++{standard}", "-fsyntax-only", *names, cwd=tmp_path))


MISSING = {
    "a header": (
        "#include <Accelerate/Accelerate.h>\n",
        "there is no <Accelerate/Accelerate.h> on",
    ),
    "of a framework in part": (
        "#import <QuartzCore/CAMetalLayer.h>\n",
        "there is no <QuartzCore/CAMetalLayer.h> on Linux; of Apple's frameworks there are Metal,",
    ),
    "a framework of which one header is there": (
        "#import <IOSurface/IOSurface.h>\n",
        "there is no <IOSurface/IOSurface.h> on Linux; of Apple's frameworks there are Metal,",
    ),
    "a view of MetalKit": (
        "#import <MetalKit/MetalKit.h>\nvoid f(MTKView* x);\n",
        "'MTKView' is unavailable: hostmetal has nothing of MetalKit",
    ),
    "a kernel of MPS": (
        "#import <MetalPerformanceShaders/MetalPerformanceShaders.h>\n"
        "void f(MPSMatrixMultiplication* x);\n",
        "'MPSMatrixMultiplication' is unavailable: hostmetal has MPSCommandBuffer of",
    ),
    "a type of MPS": (
        "#import <MetalPerformanceShaders/MetalPerformanceShaders.h>\n"
        "int f(void) { return MPSDataTypeFloat32; }\n",
        "'MPSDataTypeFloat32' is unavailable: hostmetal has MPSCommandBuffer of",
    ),
}


# Headers that bring what another of ours has, and a use of it.
PARTS = {
    "CoreFoundation/CFArray.h": "CFArrayRef a = 0; return a != 0;",
    "CoreFoundation/CFBase.h": "CFIndex i = 0; return (int)i;",
    "CoreFoundation/CFBundle.h": "return CFBundleGetMainBundle() == 0;",
    "CoreFoundation/CFData.h": "CFDataRef d = 0; return d != 0;",
    "CoreFoundation/CFDictionary.h": "CFDictionaryRef d = 0; return d != 0;",
    "CoreFoundation/CFNumber.h": "return CFNumberGetTypeID() == 0;",
    "CoreFoundation/CFString.h": 'return CFStringGetLength(CFSTR("")) != 0;',
    "CoreFoundation/CFURL.h": "CFURLRef u = 0; return u != 0;",
    "CoreGraphics/CoreGraphics.h": "CGSize s = {1, 2}; return s.width != 1;",
    "IOKit/IOReturn.h": "return kIOReturnSuccess;",
    "IOKit/IOTypes.h": "io_object_t o = 0; return (int)o;",
    "mach/host_info.h": "host_info64_t i = 0; return i != 0;",
    "mach/kern_return.h": "return KERN_SUCCESS;",
    "mach/mach_host.h": "return mach_host_self() == 77;",
    "mach/mach_init.h": "return mach_task_self() == 77;",
    "mach/mach_types.h": "mach_port_t p = 0; return (int)p;",
    "mach/task.h": "return TASK_VM_INFO == 0;",
    "mach/task_info.h": "struct mach_task_basic_info i; return sizeof i == 0;",
    "mach/vm_map.h": "vm_address_t a = 0; return (int)a;",
    "mach/vm_statistics.h": "vm_statistics64_data_t v; return sizeof v == 0;",
    "mach/vm_types.h": "vm_size_t s = 0; return (int)s;",
    "MetalKit/MetalKit.h": "return sizeof(CGPoint) == 0 || sizeof(MTLSize) == 0;",
    "objc/objc-runtime.h": 'return sel_registerName("x") == 0 || (void*)objc_msgSend == 0;',
}


def test_parts_of_headers(tmp_path: Path) -> None:
    """Each by itself; those of C in C, too."""
    files = []
    for header, body in PARTS.items():
        name = header.replace("/", "_").replace(
            ".h", ".m" if header.startswith("MetalKit") else ".c"
        )
        (tmp_path / name).write_text(f"#include <{header}>\nint f(void) {{ {body} }}\n")
        files.append(name)
    right(metal_ops("objc", "-Wall", "-Werror", "-fsyntax-only", *files, cwd=tmp_path))


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    for name, (text, said) in MISSING.items():
        (tmp_path / "a.m").write_text(text)
        done = metal_ops("objc", "-c", "a.m", cwd=tmp_path)
        assert done.returncode == 1 and said in done.stderr, (name, done.stderr)
    # A header of no framework: the compiler's words alone.
    (tmp_path / "a.m").write_text("#include <none/none.h>\n")
    done = metal_ops("objc", "-c", "a.m", cwd=tmp_path)
    assert done.returncode == 1 and "metal_ops objc" not in done.stderr
    done = metal_ops("objc", "-sectcreate", "__A", "__b", "none", "a.o", cwd=tmp_path)
    assert done.returncode == 2 and "-sectcreate __A __b none: expected a segment" in done.stderr


def test_cmake_says_which_framework_is_not_there(tmp_path: Path, toolchain: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(Asks LANGUAGES CXX)\n"
        "find_library(FOUND NAMES MetalPerformanceShaders REQUIRED)\n"
        "find_library(NONE Accelerate)\n"
        "find_library(OTHER NAMES no_such_thing)\n"
        'message(STATUS "${FOUND} ${NONE} ${OTHER}")\n'
        "add_library(part OBJECT part.cpp)\n"
        "if(ASK)\n  find_library(NEEDED Accelerate REQUIRED)\nendif()\n"
    )
    (tmp_path / "part.cpp").write_text("#include <Accelerate/Accelerate.h>\n")
    configure = [cmake(), "-S", ".", "-B", "b", "-G", "Unix Makefiles"]
    done = command(*configure, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", cwd=tmp_path)
    said = " ".join(right(done).split())
    assert "There is no framework Accelerate on Linux; there are Metal," in said
    assert "libMetalPerformanceShaders.so NONE-NOTFOUND OTHER-NOTFOUND" in said
    assert "no_such_thing on Linux" not in said
    built = command(cmake(), "--build", "b", cwd=tmp_path)
    assert "there is no <Accelerate/Accelerate.h> on Linux" in built.stdout + built.stderr
    done = command(*configure, "-DASK=ON", cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1 and "NEEDED: there is no framework Accelerate on Linux" in said


def test_words_of_the_linker() -> None:
    words = (
        "-Wl,-framework,Metal,-rpath,@executable_path/x -Xlinker -sectcreate -Xlinker A -Xlinker B -Xlinker f a.o "
        "-Wl,-soname,q -Xlinker -z -Xlinker defs -Xlinker --a=b,c -weak_framework IOKit"
    )
    assert (
        objc._linker_words(words.split())
        == (
            "-framework Metal -Wl,-rpath,@executable_path/x -sectcreate A B f a.o -Wl,-soname,q "
            "-Xlinker -z -Xlinker defs -Xlinker --a=b,c -weak_framework IOKit"
        ).split()
    )
