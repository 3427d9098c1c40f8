"""The code that runs before `main`: as on a Mac, all files' classes, selectors and literals are
known then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hosts.test_hosts import command, metal_ops, right

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has all of this itself")

# Linked first: its initialiser calls a file of Objective-C++ that comes later, which asks a class of the last file.
CALLS = r"""
extern "C" int counted(const char* by);
static int first = counted("a static of calls.cpp");
__attribute__((constructor(101))) static void early() { counted("the first constructor of calls.cpp"); }
"""
HOLDS = r"""
#import <Metal/Metal.h>
#import <objc/runtime.h>
@interface Names : NSObject
+ (NSMutableArray*)all;
@end
static NSMutableDictionary* cache = [[NSMutableDictionary alloc] init];
static id<MTLDevice> device = MTLCreateSystemDefaultDevice();
static NSArray* literal = [[NSArray alloc] initWithObjects:@"one", @2, nil];
struct Holder {
  id<MTLBuffer> buffer = [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
};
static Holder holder;

extern "C" int counted(const char* by) {
  [[Names all] addObject:[NSString stringWithUTF8String:by]];
  return (int)[[Names all] count];
}
static int seven(id self, SEL name) { return 7; }
extern "C" void report(void) {
  // Of a class that was compiled, not made at run time.
  class_addMethod(object_getClass([Names class]), @selector(length), (IMP)seven, "i16@0:8");
  printf("%d\n", (int)[(id)[Names class] length]);
  cache[@"device"] = device;
  printf("%d %d %s %d\n", cache[@"device"] == device, (int)holder.buffer.length, [literal[0] UTF8String],
         [literal[1] intValue]);
  for (NSString* name in [Names all]) printf("%s\n", [name UTF8String]);
}
"""
# Before the file of its superclass, with a category that lies before the class.
LEAF = r"""
#import "load.h"
@implementation Base (Leaf)
+ (void)load { said("Base (Leaf)"); }
@end
@implementation Leaf
+ (void)load {
  said("Leaf");
  [[Names all] addObject:NSStringFromClass([self superclass])];
}
@end
"""
BASE = r"""
#import "load.h"
@implementation Base
+ (void)load { said("Base"); }
@end
@implementation Alone
+ (void)load { said("Alone"); }
@end
@implementation Leaf (Base)
+ (void)load { said("Leaf (Base)"); }
@end
"""
LAST = r"""
#import "load.h"
@implementation Names
+ (NSMutableArray*)all {
  static NSMutableArray* all = nil;
  if (!all) all = [[NSMutableArray alloc] init];
  return all;
}
@end
__attribute__((constructor)) static void constructed(void) {
  NSDictionary* d = @{@"by" : @"a constructor of last.m"};
  [[Names all] addObject:d[@"by"]];
}
void said(const char* name) { printf("+load of %s\n", name); }
"""
HEADER = r"""
#import <Foundation/Foundation.h>
@interface Names : NSObject
+ (NSMutableArray*)all;
@end
@interface Base : NSObject
@end
@interface Leaf : Base
@end
@interface Alone : NSObject
@end
#ifdef __cplusplus
extern "C"
#endif
void said(const char* name);
"""
SOURCES = {
    "calls.cpp": CALLS,
    "leaf.m": LEAF,
    "holds.mm": HOLDS,
    "base.m": BASE,
    "last.m": LAST,
    "load.h": HEADER,
}
MAIN = """
#include <stdio.h>
void report(void);
int main(void) { printf("main\\n"); report(); return 0; }
"""
OPENS = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  printf("main\\n");
  void* part = dlopen("./libpart.so", RTLD_NOW);
  if (!part) return puts(dlerror()), 1;
  ((void (*)(void))dlsym(part, "report"))();
  return 0;
}
"""
# Classes in the linker's order, but a superclass first; then categories.
LOADED = [
    "+load of Base",
    "+load of Leaf",
    "+load of Alone",
    "+load of Base (Leaf)",
    "+load of Leaf (Base)",
]
REPORTED = [
    "7",
    "1 16 one 2",
    "Base",
    "the first constructor of calls.cpp",
    "a static of calls.cpp",
    "a constructor of last.m",
]


@pytest.mark.parametrize(
    "options",
    [[], ["-fobjc-arc", "-O2"], ["-fobjc-arc", "-O2", "-flto"]],
    ids=["retain", "arc", "arc with lto"],
)
def test_initialisers_and_load(tmp_path: Path, options: list[str]) -> None:
    """In a program, in a library that it is linked with, and in one that it opens."""
    for name, text in {**SOURCES, "main.c": MAIN, "opens.c": OPENS}.items():
        (tmp_path / name).write_text(text)
    words = ("objc", *options, "-Wall", "-Werror", "-c")
    # A header that is compiled before brings the same.
    right(metal_ops(*words, "-x", "objective-c-header", "load.h", "-o", "load.pch", cwd=tmp_path))
    objects = []
    for name in SOURCES:
        if name.endswith(".h"):
            continue
        objects.append(f"{Path(name).stem}.o")
        before = ("-include-pch", "load.pch") if name == "base.m" else ()
        right(metal_ops(*words, *before, name, cwd=tmp_path))
    lto = [word for word in options if word == "-flto"]
    right(metal_ops("objc", "main.c", *lto, *objects, "-o", "whole", cwd=tmp_path))
    done = command("./whole", cwd=tmp_path)
    assert right(done).splitlines() == [*LOADED, "main", *REPORTED]
    assert done.stderr == ""  # outside of every pool

    collected = [*lto, "-Wl,--gc-sections", "-framework", "Foundation"]
    right(metal_ops("objc", "-dynamiclib", *collected, *objects, "-o", "libpart.so", cwd=tmp_path))
    right(
        metal_ops(
            *("objc", "main.c", "-L.", "-lpart", "-rpath", "@executable_path", "-o", "linked"),
            cwd=tmp_path,
        )
    )
    printed = right(command("./linked", cwd=tmp_path)).splitlines()
    assert printed == [*LOADED, "main", *REPORTED]
    right(metal_ops("objc", "opens.c", "-o", "opens", cwd=tmp_path))
    printed = right(command("./opens", cwd=tmp_path)).splitlines()
    assert printed == ["main", *LOADED, *REPORTED]


CATEGORY = """
#import <Foundation/Foundation.h>
@implementation NSString (Twice)
- (NSString*)twice { return [self stringByAppendingString:self]; }
@end
"""
TWICE = """
#import <Foundation/Foundation.h>
@interface NSString (Twice)
- (NSString*)twice;
@end
int main(void) {
  @autoreleasepool {
    int knows = [@"a" respondsToSelector:@selector(twice)];
    printf("%d %s\\n", knows, knows ? [[@"a" twice] UTF8String] : "");
  }
}
"""


def test_members_of_static_libraries(tmp_path: Path) -> None:
    """A category is named by nothing: -ObjC links it. Members of other languages come where they are called."""
    (tmp_path / "category.m").write_text(CATEGORY)
    (tmp_path / "plain.c").write_text(
        "int not_there(void);\nint plain(void) { return not_there(); }\n"
    )
    (tmp_path / "twice.m").write_text(TWICE)
    right(metal_ops("objc", "-c", "category.m", "plain.c", cwd=tmp_path))
    right(metal_ops("objc", "-c", "twice.m", cwd=tmp_path))
    right(command("ar", "rcs", "libboth.a", "category.o", "plain.o", cwd=tmp_path))
    right(command("ar", "rcs", "libone.a", "category.o", cwd=tmp_path))
    for words, printed in {
        "libboth.a": "0 \n",
        "-ObjC libboth.a": "1 aa\n",
        "-Wl,-ObjC libboth.a": "1 aa\n",
        "-force_load libone.a": "1 aa\n",
        "-Xlinker -all_load libone.a": "1 aa\n",
    }.items():
        right(metal_ops("objc", "--link", "twice.o", *words.split(), "-o", "twice", cwd=tmp_path))
        assert right(command("./twice", cwd=tmp_path)) == printed, words
    done = metal_ops("objc", "--link", "twice.o", "-ObjC", "none.a", "-o", "twice", cwd=tmp_path)
    assert done.returncode == 2 and "-ObjC: the members of none.a cannot be read:" in done.stderr
