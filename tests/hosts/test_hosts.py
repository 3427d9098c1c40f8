"""Programs that use Metal: `python -m metal_ops objc`, `cmake`, and hosts in C++ over messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops.build import flags, objc
from tests.browser import untried
from tests.processes import ROOT

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has all of this itself")


def command(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def metal_ops(*words: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return command(sys.executable, "-m", "metal_ops", *words, cwd=cwd, **environment)


def right(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BLOCKS = r"""
#include <dispatch/dispatch.h>
#include <stdatomic.h>
#include <stdio.h>
int main(void) {
  __block atomic_int sum = 0;
  dispatch_apply(10, dispatch_get_global_queue(0, 0), ^(size_t i) { atomic_fetch_add(&sum, (int)i); });
  printf("%d\n", atomic_load(&sum));
  return 0;
}
"""
OBJECTS = r"""
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <stdatomic.h>
int main(void) {
  @autoreleasepool {
    NSArray* a = @[ @"zero", @1, @(2.5) ];
    NSMutableDictionary* d = [@{@"k" : a[0]} mutableCopy];
    d[@"n"] = @[ a[1], d[@"k"] ];
    NSMutableArray* m = [NSMutableArray arrayWithArray:a];
    m[2] = d[@"n"][1];
    NSString* both = m[0] = m[2];
    @try {
      [a objectAtIndex:3];
    } @catch (NSException* e) {
      id<MTLDevice> device = MTLCreateSystemDefaultDevice();
      printf("%s %s %s\n", [both UTF8String], [[e name] UTF8String], device ? "device" : "none");
    }
  }
  return 0;
}
"""
# One header each, as a Mac's headers of all of these know std::unique_ptr.
POINTERS = r"""
#include <stdio.h>
#include <%s>
int main() {
  std::unique_ptr<int> x(new int(7));
  printf("%%d\n", *x);
}
"""
# libstdc++'s headers include each other otherwise as of C++20; these four were found half done.
HEADERS = r"""
#include <%s>
#include <string>
int main() {
  auto x = std::make_shared<std::string>("7");
  std::unique_ptr<int> y(new int(int(x->size())));
  return *y - 1;
}
"""
# Nothing else is named: <iostream> has the time on a Mac, and CoreFoundation C's headers.
TIMES = r"""
#include <iostream>
#include <CoreFoundation/CoreFoundation.h>
int main() {
  auto began = std::chrono::high_resolution_clock::now();
  assert(std::chrono::duration_cast<std::chrono::seconds>(began - began).count() == 0);
  errno = 0;
  std::cout << (isdigit(0x37) ? strerror(errno) : "no digit") << std::endl;
}
"""
# The headers that metal-cpp and programs around it include beside Metal.
AROUND = r"""
#include <AvailabilityMacros.h>
#include <CoreGraphics/CGColorSpace.h>
#include <QuartzCore/QuartzCore.h>
#include <mach/mach.h>
#include <mach/vm_page_size.h>
#include <simd/simd.h>
#include <stdio.h>
#include <sys/sysctl.h>
int main(void) {
  int64_t memory = 0;
  int processors = 0;
  size_t of_memory = sizeof memory, of_processors = sizeof processors, small = 1;
  if (sysctlbyname("hw.memsize", &memory, &of_memory, NULL, 0) || memory < (1 << 20)) return 2;
  if (sysctlbyname("hw.ncpu", &processors, &of_processors, NULL, 0) || processors < 1) return 3;
  if (sysctlbyname("hw.ncpu", &processors, &small, NULL, 0) != -1 || errno != ENOMEM) return 4;
  if (sysctlbyname("hw.none", &memory, &of_memory, NULL, 0) != -1 || errno != ENOENT) return 5;
  task_id_token_t token = KERN_SUCCESS;
  CGColorSpaceRef space = 0;
  if (token || space || vm_page_size & vm_page_mask) return 1;
  CGSize size = CGSizeMake(3, 4);
  CFTimeInterval began = CACurrentMediaTime();
  simd_ushort3 a = simd_make_ushort3(1, 2, 3);
  simd_uchar4 b = {1, 0, 1, 0}, c = {1, 1, 1, 1};
  simd_float4 d = simd_make_float4(simd_make_float2(1, 2), simd_make_float2(3, 4));
  bool same = simd_all(a == simd_make_ushort3(simd_make_ushort4(a, 9)));
  printf("%g %d %d%d%d%d %g\n", size.height, CACurrentMediaTime() >= began, same, simd_all(b == c),
         simd_any(b == c), simd_any(b > c), simd_make_float3(d).z);
  return 0;
}
"""
# As NSProcessInfo's operatingSystemVersion, 15.0, whatever clang makes of a system that is no Mac. A number a question.
AVAILABLE = r"""
#include <CoreFoundation/CoreFoundation.h>
#ifdef __OBJC__
#define asked @available
#else
#define asked __builtin_available
#endif
#define LATER macOS 26.0
// C++ wrappers of Metal list devices where this says so.
#if __MAC_OS_X_VERSION_MIN_REQUIRED < 101100 || __MAC_OS_X_VERSION_MAX_ALLOWED != __MAC_15_0
#error "another macOS"
#endif
#ifdef __cplusplus
struct Queue {
  int available() const { return 3; }
  int available(int x) const { return x; }
};
#endif
int main(void) {
  if (asked(macOS 16, iOS 12, *)) printf("16 ");
  if (asked(macOS 15.1, *)) printf("15.1 ");
  if (asked(tvOS 26, macos 15.0, *)) printf("15 ");
  if (asked(macOS 10.15.4, *)) printf("10 ");
  if (asked(LATER, iOS 12, *)) printf("26 ");
  if (asked(iOS 26, *)) printf("not iOS ");
  bool both = false;
  if (asked(macOS 11, *)) {
    if (__builtin_available(macOS 13.3, *)) both = true;
  }
#ifdef __cplusplus
  Queue queue;
  both = both && queue.available() == 3 && queue.available(queue.available(4)) == 4;
#endif
  printf("%d\n", both);
  return 0;
}
"""
# <Metal/Metal.h> alone brings CoreFoundation, and the system's headers as a Mac's SDK does.
CORE_FOUNDATION = r"""
#import <Metal/Metal.h>
int main(void) {
  @autoreleasepool {
    CFTypeRef held = CFBridgingRetain([NSMutableArray arrayWithObject:@"seven"]);
    CFTypeRef first = CFRetain(CFArrayGetValueAtIndex((CFArrayRef)held, 0));
    printf("%ld %d\n", CFArrayGetCount((CFArrayRef)held), CFEqual(first, CFSTR("seven")));
    CFRelease(first);
    NSArray* again = CFBridgingRelease(held);
    printf("%s\n", [[again objectAtIndex:0] UTF8String]);

    CFStringRef text = CFStringCreateWithCString(kCFAllocatorDefault, "gr\xc3\xbcn", kCFStringEncodingUTF8);
    char fits[6], small[5];
    int whole = CFStringGetCString(text, fits, sizeof fits, kCFStringEncodingUTF8);
    int cut = CFStringGetCString(text, small, sizeof small, kCFStringEncodingUTF8);
    int ascii = CFStringGetCString(text, fits, sizeof fits, kCFStringEncodingASCII);
    printf("%ld %d%d%d %d\n", CFStringGetLength(text), whole, cut, ascii,
           strcmp(fits, CFStringGetCStringPtr(text, kCFStringEncodingUTF8)));
    CFRelease(text);

    UInt8 folder[4096];
    CFURLRef url = CFBundleCopyBundleURL(CFBundleGetMainBundle());
    int found = CFURLGetFileSystemRepresentation(url, true, folder, sizeof folder);
    CFURLRef none = CFBundleCopyResourceURL(CFBundleGetMainBundle(), CFSTR("none"), CFSTR("metallib"), NULL);
    printf("%d %c %d %d\n", found, folder[0], none == NULL, CFAbsoluteTimeGetCurrent() > 7e8);
    CFRelease(url);
    CFDataRef data = CFDataCreate(NULL, folder, 1);
    printf("%ld %c\n", CFDataGetLength(data), CFDataGetBytePtr(data)[0]);
    CFRelease(data);

    void* pages = NULL;
    if (vm_allocate(mach_task_self(), (vm_address_t*)&pages, 3, VM_FLAGS_ANYWHERE)) return 1;
    printf("%d %d\n", ((char*)pages)[2], (int)((uintptr_t)pages % sysconf(_SC_PAGESIZE)));
    return vm_deallocate(mach_task_self(), (vm_address_t)pages, 3);
  }
}
"""
# (name of the file, text, the program's output)
HOSTS = {
    "C with blocks and atomics": ("host.c", BLOCKS, "45\n"),
    "C++ with blocks": (
        "host.cpp",
        BLOCKS.replace("<stdatomic.h>", "<atomic>").replace(
            "__block atomic_int", "static std::atomic<int>"
        ),
        "45\n",
    ),
    **{
        f"C++ with <{header}> alone": ("host.cpp", POINTERS % header, "7\n")
        for header in ("string", "map")
    },
    **{
        f"C++ with <{header}> and an optional": (
            "host.cpp",
            POINTERS.replace("std::unique_ptr<int> x(new int(7))", "std::optional<int> x(7)")
            % header,
            "7\n",
        )
        for header in ("map", "unordered_map")
    },
    "C++ with what <iostream> and CoreFoundation bring": ("host.cpp", TIMES, "Success\n"),
    **{
        f"what lies around Metal, {name}": (name, AROUND, "4 1 1010 3\n")
        for name in ("host.c", "host.cpp", "host.m")
    },
    **{
        f"what is available, {name}": (name, AVAILABLE, "15 10 not iOS 1\n")
        for name in ("host.c", "host.cpp", "host.m", "host.mm")
    },
    "Objective-C": ("host.m", OBJECTS, "zero NSRangeException device\n"),
    "Objective-C++": ("host.mm", "#include <vector>\n" + OBJECTS, "zero NSRangeException device\n"),
}


@pytest.mark.parametrize(("name", "text", "printed"), HOSTS.values(), ids=HOSTS)
def test_hosts_compile_and_run(tmp_path: Path, name: str, text: str, printed: str) -> None:
    """As two steps with a list of dependencies, warnings being errors."""
    (tmp_path / name).write_text(text)
    right(
        metal_ops(
            "objc", "-Wall", "-Werror", "-MD", "-MF", "d", "-c", name, "-o", "host.o", cwd=tmp_path
        )
    )
    rule = (tmp_path / "d").read_text()
    assert rule.startswith(f"host.o: {name}")
    right(metal_ops("objc", "--link", "host.o", "-o", "host", cwd=tmp_path))
    assert right(command("./host", cwd=tmp_path)) == printed


@pytest.mark.parametrize("options", [["-std=c11"], ["-fobjc-arc"]], ids=" ".join)
def test_core_foundation(tmp_path: Path, options: list[str]) -> None:
    """Its objects are Foundation's. -std=c11 hides nothing of a Mac's headers."""
    (tmp_path / "host.m").write_text(CORE_FOUNDATION)
    right(metal_ops("objc", "-Wall", "-Werror", *options, "host.m", "-o", "host", cwd=tmp_path))
    printed = right(command("./host", cwd=tmp_path))
    assert printed.splitlines() == ["1 1", "seven", "4 100 0", "1 / 1 1", "1 /", "0 0"]


@pytest.mark.parametrize("header", ["atomic", "ios", "memory", "stdexcept"])
def test_headers_of_later_c_plus_plus(tmp_path: Path, header: str) -> None:
    (tmp_path / "host.cpp").write_text(HEADERS % header)
    right(metal_ops("objc", "-std=c++20", "-fsyntax-only", "host.cpp", cwd=tmp_path))


def test_several_languages_in_one_call(tmp_path: Path) -> None:
    """And options for a Mac alone change nothing."""
    (tmp_path / "a.m").write_text(OBJECTS.replace("int main(void)", "int in_m(void)"))
    (tmp_path / "b.c").write_text(BLOCKS.replace("int main(void)", "int in_c(void)"))
    (tmp_path / "c.cpp").write_text(
        'extern "C" int in_m(void); extern "C" int in_c(void);\n'
        '#include <string>\nint main() { return std::to_string(in_m() + in_c()) != "0"; }\n'
    )
    mac = (
        "-arch arm64 -mmacosx-version-min=12.0 -isysroot /sdk -fmodules -stdlib=libc++ -fno-objc-arc -framework Metal "
        "-Wl,-framework,Foundation -Xlinker -framework -Xlinker QuartzCore -Wl,-rpath,@executable_path/lib"
    )
    done = metal_ops(
        "objc", *mac.split(), "-Werror", "a.m", "b.c", "c.cpp", "-o", "all", cwd=tmp_path
    )
    assert right(done) == "" and done.stderr == ""
    assert right(command("./all", cwd=tmp_path)) == "zero NSRangeException device\n45\n"
    headers = command("readelf", "-d", "all", cwd=tmp_path).stdout
    assert "$ORIGIN/lib" in headers and "libhostmetal.so" in headers


def test_a_library_by_the_words_of_a_mac(tmp_path: Path) -> None:
    """Its object is compiled apart, and is no word of a library there."""
    (tmp_path / "part.m").write_text(
        "#import <Metal/Metal.h>\nint calls;\nint named(void) {\n  ++calls;\n"
        "  return [[MTLCreateSystemDefaultDevice() name] length] > 0;\n}\n"
    )
    (tmp_path / "main.c").write_text(
        "#include <stdio.h>\nextern int calls;\nint named(void);\n"
        'int main(void) { int n = named(); printf("%d %d\\n", n, calls); }\n'
    )
    right(metal_ops("objc", "-c", "part.m", "-o", "part.o", cwd=tmp_path))
    words = (
        "-install_name @rpath/libpart.so -current_version 1.0 -compatibility_version 1.0 -undefined dynamic_lookup "
        "-Wl,-undefined,dynamic_lookup -dead_strip -Wl,-dead_strip -framework Metal"
    )
    right(
        metal_ops("objc", "-dynamiclib", "part.o", *words.split(), "-o", "libpart.so", cwd=tmp_path)
    )
    assert "soname: [libpart.so]" in command("readelf", "-d", "libpart.so", cwd=tmp_path).stdout
    words = "main.c -L. -lpart -Wl,-rpath,@executable_path -o main"
    right(metal_ops("objc", *words.split(), cwd=tmp_path))
    assert right(command("./main", cwd=tmp_path)) == "1 1\n"


# The names of C have an underscore, .align is of powers of two, and a name in a string or a comment is none.
EMBEDS = """\
.section __DATA,__shaders
.globl _shader_start
.align 3
_shader_start: // _shader_start
.incbin "_shader_start.txt"
.globl _shader_end
_shader_end:
.section __TEXT,__const ; .private_extern _seven
_seven: .byte 7
.subsections_via_symbols
"""
EMBEDDED = r"""
#include <stdint.h>
#include <stdio.h>
extern const char shader_start[], shader_end[], seven;
int main(void) {
  printf("%.*s %d %d\n", (int)(shader_end - shader_start), shader_start, seven, (int)((uintptr_t)shader_start % 8));
}
"""


def test_assembly_of_a_mac_embeds_a_file(tmp_path: Path, toolchain: Path) -> None:
    """By itself, preprocessed, and in a project; an error has the file's line."""
    (tmp_path / "_shader_start.txt").write_text("kernel void f() {}")
    (tmp_path / "part.s").write_text(EMBEDS)
    (tmp_path / "SHADERS.S").write_text(f"#define NAMED {EMBEDS}".replace("NAMED ", "NAMED\n"))
    (tmp_path / "main.c").write_text(EMBEDDED)
    for part in ("part.s", "SHADERS.S"):
        done = metal_ops("objc", "-Werror", "-Wl,--fatal-warnings", "main.c", part, cwd=tmp_path)
        assert right(done) == "" and done.stderr == ""
        assert right(command("./a.out", cwd=tmp_path)) == "kernel void f() {} 7 0\n"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(Embeds LANGUAGES C ASM)\n"
        "include_directories(.)\nadd_executable(embeds main.c part.s)\n"
    )
    words = ["-S", ".", "-B", "b", "-G", "Unix Makefiles", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"]
    right(command(cmake(), *words, cwd=tmp_path))
    right(command(cmake(), "--build", "b", cwd=tmp_path))
    assert right(command("b/embeds", cwd=tmp_path)) == "kernel void f() {} 7 0\n"
    (tmp_path / "part.s").write_text(EMBEDS + "  neither\n")
    done = metal_ops("objc", "-c", "part.s", cwd=tmp_path)
    assert done.returncode == 1 and "part.s:11:3: error" in done.stderr


def test_assembly_of_linux_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "seven.s").write_text(
        '.globl _seven\n.data\n_seven: .byte 7\n.section .note.GNU-stack,"",%progbits\n'
    )
    (tmp_path / "main.c").write_text("extern char _seven;\nint main(void) { return _seven - 7; }\n")
    right(metal_ops("objc", "-c", "seven.s", cwd=tmp_path))
    right(metal_ops("objc", "main.c", "seven.o", "-o", "main", cwd=tmp_path))
    right(command("./main", cwd=tmp_path))


def test_a_plain_c_program_is_tied_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 0; }\n")
    right(metal_ops("objc", "a.c", "-o", "a", cwd=tmp_path))
    assert "libhostmetal" not in command("readelf", "-d", "a", cwd=tmp_path).stdout


WRONG = {
    "a framework": (
        ["-framework", "AppKit", "ok.m"],
        2,
        "there is no framework AppKit on Linux; there are Metal, Foundation,",
    ),
    "linking a source": (
        ["--link", "ok.m"],
        2,
        "--link takes what is compiled, and ok.m is a source",
    ),
    "linking and compiling": (["--link", "-c", "ok.m"], 2, "--link and -c exclude each other"),
    "one output of two": (
        ["-c", "ok.m", "ok.c", "-o", "x.o"],
        2,
        "-o x.o is one file, and there are 2 sources",
    ),
    "nothing to compile": (["-c", "ok.o"], 2, "no source to compile"),
    "an error": (["-c", "bad.m"], 1, "bad.m:3:"),
}


@pytest.mark.parametrize(("words", "code", "message"), WRONG.values(), ids=WRONG)
def test_says_what_is_wrong(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    head = "#import <Foundation/Foundation.h>\n"
    texts = {
        "ok.m": head,
        "ok.c": "int x;\n",
        "bad.m": head + "\nint f(void) { return nothing; }\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    done = metal_ops("objc", *words, cwd=tmp_path)
    assert done.returncode == code and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(texts) == sorted(path.name for path in tmp_path.iterdir())


def test_what_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("METAL_OPS_CXX", "no-such-compiler")
    assert objc.main(["--version"]) == 2
    said = capsys.readouterr().err
    assert "no-such-compiler was not found; run 'sudo apt-get install clang-19" in said
    monkeypatch.delenv("METAL_OPS_CXX")
    monkeypatch.setattr(flags.shutil, "which", lambda _: None)
    assert objc.main(["-c", "a.m"]) == 2
    assert "clang was not found" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(flags, "PACKAGE", Path("/nowhere"))
    assert objc.main(["a.o", "-o", "a"]) == 2
    assert "/nowhere/libhostmetal.so is missing; run `pip install" in capsys.readouterr().err


def test_a_wrapper_of_messages(tmp_path: Path) -> None:
    options = ["-std=c++17", "-Wall", "-Werror", "-framework", "Metal", "-framework", "Foundation"]
    right(metal_ops("objc", *options, HERE / "wrapped.cpp", "-o", "wrapped", cwd=tmp_path))
    lines = right(command("./wrapped", cwd=tmp_path)).splitlines()
    assert len(lines) == 14 and all(line.startswith("ok ") for line in lines), lines


CTYPES = r"""
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.sel_registerName.restype = lib.MTLCreateSystemDefaultDevice.restype = lib.objc_getClass.restype = ctypes.c_void_p
def send(target, name, *arguments):
    lib.objc_msgSend.restype = ctypes.c_void_p
    pointers = [x if isinstance(x, bytes) else ctypes.c_void_p(x) for x in arguments]
    return lib.objc_msgSend(ctypes.c_void_p(target), ctypes.c_void_p(lib.sel_registerName(name)), *pointers)
source = send(lib.objc_getClass(b"NSString"), b"stringWithUTF8String:", b"kernel void nothing() {}")
error = ctypes.c_void_p()
device = lib.MTLCreateSystemDefaultDevice()
made = send(device, b"newLibraryWithSource:options:error:", source, None, ctypes.addressof(error))
said = send(send(error.value, b"localizedDescription"), b"UTF8String")
print("compiled" if made else ctypes.string_at(said).decode())
"""


def test_an_interpreter_without_our_packages(tmp_path: Path) -> None:
    """Its programs reach Metal by ctypes; the shader compiler runs in the interpreter that has its packages."""
    right(command(sys.executable, "-m", "venv", "--without-pip", "bare", cwd=tmp_path))
    (tmp_path / "host.py").write_text(CTYPES)
    bare = command(
        "bare/bin/python", "host.py", ROOT / "python/metal_ops/libhostmetal.so", cwd=tmp_path
    )
    assert right(bare) == "compiled\n", bare.stderr


def cmake() -> str:
    """PyPI's, wherever it is installed, or the system's."""
    try:
        from cmake import CMAKE_BIN_DIR
    except ImportError:
        CMAKE_BIN_DIR = ""
    found = shutil.which("cmake", path=f"{CMAKE_BIN_DIR}:{os.environ['PATH']}")
    return found or untried("cmake is missing, which `make test` installs")


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toolchain")
    done = metal_ops("cmake", cwd=folder)
    (folder / "metal.cmake").write_text(right(done))
    return folder / "metal.cmake"


@pytest.fixture(scope="module")
def configured(toolchain: Path) -> Path:
    """A project in Apple's layout, unedited."""
    folder = toolchain.with_name("b")
    words = [cmake(), "-S", HERE / "apple_layout", "-B", folder, "-G", "Unix Makefiles"]
    right(command(*words, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", cwd=toolchain.parent))
    return folder


def test_a_cmake_project_of_a_mac(configured: Path) -> None:
    right(command(cmake(), "--build", configured, "--parallel", "2", cwd=configured))
    assert right(command(configured / "sums", cwd=ROOT)) == "100 sums, the last is 148.5\n"


def test_cmake_projects_that_ask_whether_this_is_a_mac(tmp_path: Path, toolchain: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(Asks LANGUAGES NONE)\n"
        'if(APPLE)\n  message(STATUS "a Mac")\nelse()\n  message(STATUS "no Mac")\nendif()\n'
    )
    configure = [cmake(), "-S", ".", "-G", "Unix Makefiles", f"-DCMAKE_TOOLCHAIN_FILE={toolchain}"]
    assert "-- no Mac" in right(command(*configure, "-B", "a", cwd=tmp_path))
    assert "-- a Mac" in right(command(*configure, "-B", "b", "-DMETAL_OPS_APPLE=ON", cwd=tmp_path))


# words of xcrun: (exit code, output)
XCRUN = {
    "--find metal": (0, "/bin/metal\n"),
    "-sdk macosx -f clang++": (0, "/compilers/clang++\n"),
    "--sdk macosx --show-sdk-version": (0, "15.0\n"),
    "-sdk macosx metal --version": (0, "metal_ops metal"),
    "-sdk macosx clang --version": (0, "clang version"),
    "-sdk macosx no-such-tool": (72, 'unable to find utility "no-such-tool"'),
    "--show-toolchain-path": (64, "there is no --show-toolchain-path on Linux"),
    "": (64, "no command given"),
}


def test_xcrun(tmp_path: Path) -> None:
    folder = right(metal_ops("cmake", "--path", cwd=tmp_path)).strip()
    for words, (code, text) in XCRUN.items():
        path = f"{folder}:{os.environ['PATH']}"
        done = command("xcrun", *words.split(), cwd=tmp_path, PATH=path)
        assert done.returncode == code and text in done.stdout + done.stderr, (words, done)
