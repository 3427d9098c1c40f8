"""Objective-C as clang compiles it for a Mac: instance variables anywhere, properties, automatic reference counting.

Classes lie over several files, as the hidden ivars of one move those that another one adds.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tests.hosts.test_hosts import command, metal_ops, right

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has all of this itself")

HEADER = r"""
#import <Foundation/Foundation.h>
#include <simd/simd.h>
@interface Base : NSObject {
 @protected
  int shown;
}
@property(nonatomic, copy) NSString* title;
@property(readonly) int secret;
@property(getter=isOn) BOOL on;
@end
@interface Middle : Base
@property double weight;
@property simd_float4 place;
@end
@interface Leaf : Middle {
  char last;
}
@property(retain) NSArray* parts;
- (NSString*)all;
@end
"""
BASE = r"""
#import "classes.h"
@interface Base () {
  double hidden;
  unsigned low : 3, high : 5;
}
@property(readwrite) int secret;
@end
@implementation Base {
  char tail;
}
- (id)init {
  if ((self = [super init])) {
    shown = 1; hidden = 2.5; low = 5; high = 17; tail = 't'; _secret = 6;
  }
  return self;
}
- (NSString*)description {
  return [NSString stringWithFormat:@"%d %g %u %u %c %d %d", shown, hidden, low, high, tail, self.secret, self.on];
}
@end
"""
MIDDLE = r"""
#import "classes.h"
@implementation Middle {
  int own;
}
- (id)init {
  if ((self = [super init])) {
    own = 3; _weight = 0.5; self.place = (simd_float4){1, 2, 3, 4};
  }
  return self;
}
- (NSString*)description {
  return [NSString stringWithFormat:@"%@|%d %g %g %d", [super description], own, _weight, self.place[3],
                                    (int)((uintptr_t)&_place % 16)];
}
@end
"""
LEAF = r"""
#import "classes.h"
@implementation Leaf
- (NSString*)all {
  last = 'z';
  shown += 1;
  self.on = YES;
  self.title = @"name";
  return [NSString stringWithFormat:@"%@|%c %@ %d", [self description], last, self.title,
                                    (int)[self.parts[0] intValue]];
}
@end
"""
MAIN = r"""
#import "classes.h"
#import <objc/runtime.h>
#define FIRST(array) array[0]
@interface NSString (Twice)
- (NSString*)twice;
@end
@implementation NSString (Twice)
- (NSString*)twice { return [self stringByAppendingString:self]; }
@end
int main(void) {
  @autoreleasepool {
    Leaf* leaf = [[Leaf alloc] init];
    leaf.parts = @[@7];
    printf("%s\n", [[leaf all] UTF8String]);
    printf("%s %d %d\n", [[FIRST(@[@"twice"]) twice] UTF8String],
           class_getInstanceSize([Leaf class]) > class_getInstanceSize([Middle class]),
           [leaf conformsToProtocol:@protocol(NSObject)]);
  }
  return 0;
}
"""
PRINTED = "2 2.5 5 17 t 6 1|3 0.5 4 0|z name 7\ntwicetwice 1 1\n"
FILES = {"base.m": BASE, "middle.m": MIDDLE, "leaf.m": LEAF, "main.m": MAIN}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    (folder / "classes.h").write_text(HEADER)
    for name, text in FILES.items():
        (folder / name).write_text(text)
        right(metal_ops("objc", "-O1", "-Wall", "-Werror", "-c", name, cwd=folder))
    return folder


@pytest.mark.parametrize("order", list(itertools.permutations(["base.o", "middle.o", "leaf.o"])))
def test_variables_of_a_class_over_several_files(objects: Path, order: tuple[str, ...]) -> None:
    """Each file brings its class when it is its turn, before or after its superclass."""
    program = "-".join(order)
    right(metal_ops("objc", "--link", *order, "main.o", "-o", program, cwd=objects))
    assert right(command(f"./{program}", cwd=objects)) == PRINTED


COUNTED = r"""
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#import <objc/runtime.h>
static int alive;
@interface Part : NSObject
@property(nonatomic, strong) NSString* title;
@property(nonatomic, weak) Part* partner;
@property(nonatomic, copy) int (^work)(int);
@property(nonatomic, strong) dispatch_queue_t queue;
@end
@implementation Part {
  NSMutableArray* parts;
}
- (instancetype)init {
  if ((self = [super init])) {
    ++alive;
    parts = [NSMutableArray new];
  }
  return self;
}
- (void)add:(Part*)part { [parts addObject:part]; }
- (void)dealloc { --alive; }
@end

static void build(void) {
  Part* whole = [Part new];
  Part* seen = nil;
  @autoreleasepool {
    for (int i = 0; i < 3; ++i) {
      Part* part = [Part new];
      part.title = [NSString stringWithFormat:@"part %d", i];
      NSString* title = part.title;
      part.work = ^(int x) { return x + (int)title.length; };
      part.partner = whole;
      [whole add:part];
      if (i == 1) seen = part;
    }
    Part* other = [Part new];
    whole.partner = other;
    printf("%d %d\n", alive, whole.partner == other);
  }
  whole.queue = dispatch_queue_create("parts", DISPATCH_QUEUE_SERIAL);
  __weak Part* watched = whole;
  {
    dispatch_sync(whole.queue, ^{ printf("%d %d %d\n", whole.partner == nil, seen.work(10), watched != nil); });
  }
  whole = nil;
  @autoreleasepool {
    printf("%d %s %d %d\n", watched == nil, [seen.title UTF8String], seen.partner == nil,
           object_getClass(seen) == [Part class]);
  }
}

int main(void) {
  @autoreleasepool {
    build();
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLBuffer> buffer = [device newBufferWithLength:64 options:MTLResourceStorageModeShared];
    __weak id<MTLBuffer> watched = buffer;
    __weak id<MTLDevice> same = device;
    NSError* error = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:@"kernel void f( {" options:nil error:&error];
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
      printf("done %d\n", done.status == MTLCommandBufferStatusCompleted);
    }];
    [commands commit];
    [commands waitUntilCompleted];
    NSUInteger length = buffer.length;
    buffer = nil;
    printf("%d %d %d %d\n", (int)length, watched == nil, library == nil && error != nil, same == device);
  }
  printf("%d\n", alive);
  return 0;
}
"""
COUNTED_PRINTS = "5 1\n1 16 1\n1 part 1 1 1\ndone 1\n64 1 1 1\n0\n"


@pytest.mark.parametrize("options", [["-O0"], ["-O2"]], ids=" ".join)
@pytest.mark.parametrize("name", ["counted.m", "counted.mm"])
def test_automatic_reference_counting(tmp_path: Path, name: str, options: list[str]) -> None:
    (tmp_path / name).write_text(COUNTED)
    right(metal_ops("objc", "-fobjc-arc", *options, name, "-o", "counted", cwd=tmp_path))
    assert right(command("./counted", cwd=tmp_path)) == COUNTED_PRINTS


def test_a_file_that_counts_beside_one_that_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.m").write_text(
        '#import <Foundation/Foundation.h>\nNSString* made(void) { return [NSString stringWithFormat:@"%d", 5]; }\n'
    )
    (tmp_path / "b.m").write_text(
        "#import <Foundation/Foundation.h>\nNSString* made(void);\n"
        'int main(void) { NSString* s = [made() retain]; printf("%s\\n", [s UTF8String]); [s release]; return 0; }\n'
    )
    right(metal_ops("objc", "-fobjc-arc", "-c", "a.m", cwd=tmp_path))
    right(metal_ops("objc", "-fobjc-arc", "-fno-objc-arc", "-c", "b.m", cwd=tmp_path))
    right(metal_ops("objc", "--link", "a.o", "b.o", "-o", "both", cwd=tmp_path))
    done = command("./both", cwd=tmp_path)
    # Outside of every pool, without a word, as on a Mac.
    assert right(done) == "5\n" and done.stderr == ""


WEAK_RACE = r"""
#import <Foundation/Foundation.h>
#include <stdatomic.h>
@interface Thing : NSObject { @public int value; }
@end
@implementation Thing
- (void)dealloc { value = -1; }
@end
int main(void) {
  __block atomic_int wrong = 0, gone = 0;
  for (int round = 0; round < 3000; ++round) {
    @autoreleasepool {
      __block Thing* thing = [Thing new];
      thing->value = 1;
      __weak Thing* seen = thing;
      dispatch_apply(4, dispatch_get_global_queue(0, 0), ^(size_t i) {
        if (i == 0) { thing = nil; return; }
        Thing* got = seen;
        if (!got) ++gone;
        else if (got->value != 1) ++wrong;
      });
      if (seen) ++wrong;
    }
  }
  printf("%d\n", wrong);
  return 0;
}
"""


def test_weak_references_while_the_last_strong_one_goes(tmp_path: Path) -> None:
    (tmp_path / "race.m").write_text(WEAK_RACE)
    right(metal_ops("objc", "-fobjc-arc", "-O1", "race.m", "-o", "race", cwd=tmp_path))
    assert right(command("./race", cwd=tmp_path)) == "0\n"


HELD = r"""
#import <Foundation/Foundation.h>
#include <stdexcept>
#include <string>
#include <vector>
@interface Holder : NSObject
@property std::string name;
@end
@implementation Holder {
  std::vector<std::string> all;
}
- (void)fail:(int)how {
  all.push_back("a text that is longer than what lies in the string itself");
  if (how) throw std::runtime_error(all.back());
  @throw [NSException exceptionWithName:@"Known" reason:@"" userInfo:nil];
}
@end
int main() {
  @autoreleasepool {
    Holder* holder = [[Holder alloc] init];
    holder.name = "a name that is longer than what lies in the string itself";
    try { [holder fail:1]; } catch (const std::exception& e) { printf("%d\n", int(strlen(e.what()))); }
    @try {
      [holder fail:0];
    } @catch (NSException* e) {
      printf("%s %d\n", [[e name] UTF8String], int(holder.name.size()));
    }
  }
}
"""


@pytest.mark.parametrize("options", [[], ["-fobjc-arc"]], ids=["retain", "arc"])
def test_objects_of_cpp_in_classes(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "held.mm").write_text(HELD)
    right(metal_ops("objc", *options, "held.mm", "-o", "held", cwd=tmp_path))
    assert right(command("./held", cwd=tmp_path)) == "57\nKnown 57\n"
