"""All that Metal's reflection says of a kernel, property by property: what nothing sets or nothing reads fails here."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.test_hosts import command, metal_ops, right
from tests.processes import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Apple's own is not tested")

TYPES = """
#include <metal_stdlib>
using namespace metal;
enum class Mode : ushort { off, on };
struct Inner { packed_short3 s; Mode mode; };
struct S { float a; half3 h; Inner inner[2]; atomic_uint n; float3x2 m; };
struct Table {
  device float* to [[id(2)]];
  texture2d<half, access::write> t [[id(5)]];
  sampler s;
  constant Inner* inner;
  float x;
};
constant int A [[function_constant(3)]];
constant half4 B [[function_constant(0)]];
constant bool C [[function_constant(9)]];
"""
SCALAR = {
    "float": 3,
    "float2": 4,
    "half": 16,
    "half3": 18,
    "float3x2": 10,
    "int": 29,
    "uint": 33,
    "short3": 39,
}
NUMBERS = SCALAR | {"ushort": 41, "bool": 53, "half4": 19, "int4": 32, "bfloat": 121, "long2": 82}
STRUCT, ARRAY, TEXTURE, SAMPLER, POINTER = 1, 2, 58, 59, 60
READ, BOTH, WRITE = 0, 1, 2
NONE: list[Any] = []


def buffer(
    alignment: int, size: int, kind: Any, access: int = READ, structure: Any = NONE
) -> dict[str, Any]:
    """A buffer's row; [] where there is no struct."""
    number = NUMBERS.get(kind, kind)
    pointer = [number, access, alignment, size, structure]
    found = {"type": 0, "access": access, "bufferAlignment": alignment, "bufferDataSize": size}
    return found | {
        "bufferDataType": number,
        "bufferStructType": structure,
        "bufferPointerType": pointer,
    }


def member(name: str, offset: int, kind: Any, index: int, of: Any = NONE) -> list[Any]:
    """A struct's member: what it consists of, where it is no number."""
    return [name, offset, NUMBERS.get(kind, kind), index, of]


def texture(
    kind: int, number: str, access: int = READ, depth: int = 0, length: int = 1
) -> dict[str, Any]:
    found = {"type": 2, "access": access, "textureType": kind, "textureDataType": NUMBERS[number]}
    return found | {"isDepthTexture": depth, "arrayLength": length}


INNER = [member("s", 0, "short3", 0), member("mode", 6, "ushort", 1)]
S = [
    member("a", 0, "float", 0),
    member("h", 8, "half3", 1),
    member("inner", 16, ARRAY, 2, ["array", STRUCT, 2, 8, 2, INNER]),
    member("n", 32, "uint", 6),
    member("m", 40, "float3x2", 7),
]
IN_TABLE = [
    member("to", 0, POINTER, 2, ["pointer", NUMBERS["float"], BOTH, 4, 4, 0, NONE]),
    member("t", 8, TEXTURE, 5, ["texture", 2, NUMBERS["half"], WRITE, 0]),
    member("s", 16, SAMPLER, 6),
    member("inner", 24, POINTER, 7, ["pointer", STRUCT, READ, 2, 8, 0, INNER]),
    member("x", 32, "float", 8),
]
GROUP = {"type": 1, "access": BOTH}
# A parameter as it is declared: what each of Metal's properties says of it, in the order of MTLArgument.h.
PARAMETERS = {
    "device float* x": buffer(4, 4, "float", BOTH),
    "device const half3* x": buffer(8, 8, "half3"),
    "constant packed_half3& x": buffer(2, 6, "half3"),
    "constant float3x2& x": buffer(8, 24, "float3x2"),
    "constant Mode& x": buffer(2, 2, "ushort"),
    "device atomic_uint* x": buffer(4, 4, "uint", BOTH),
    "device atomic<float>& x": buffer(4, 4, "float", BOTH),
    "device atomic_bool* x": buffer(1, 1, "bool", BOTH),
    "constant long2* x": buffer(16, 16, "long2"),
    "constant float2 (&x)[3]": buffer(8, 24, ARRAY)
    | {"bufferPointerType": [ARRAY, READ, 8, 24, NONE]},
    "device S* x": buffer(8, 64, STRUCT, BOTH, S),
    "constant Table& x": buffer(8, 40, STRUCT, READ, IN_TABLE),
    "threadgroup float4* x": GROUP
    | {"threadgroupMemoryAlignment": 16, "threadgroupMemoryDataSize": 16},
    "texture2d<float> x": texture(2, "float"),
    "texture2d<half, access::write> x": texture(2, "half", WRITE),
    "texture3d<int, access::read_write> x": texture(7, "int", BOTH),
    "texture1d_array<uint, access::read> x": texture(1, "uint"),
    "depth2d<float> x": texture(2, "float", depth=1),
    "texture_buffer<ushort> x": texture(9, "ushort"),
    "array<texture2d<half>, 3> x": texture(2, "half", length=3),
    "array<depth2d_array<float>, 2> x": texture(3, "float", depth=1, length=2),
    "sampler x": {"type": 3, "access": READ},
    "visible_function_table<float(float)> x": {"type": 24, "access": READ},
}
HOST = r"""
#import <Metal/Metal.h>
#include <stdio.h>
static id<MTLDevice> device;
static id fields(MTLStructType* type);
static id pointer(MTLPointerType* p) {
  if (!p) return @[];
  return @[ @(p.elementType), @(p.access), @(p.alignment), @(p.dataSize), fields(p.elementStructType) ];
}
static id of(MTLStructMember* m) {
  MTLArrayType* a = m.arrayType;
  MTLTextureReferenceType* t = m.textureReferenceType;
  MTLPointerType* p = m.pointerType;
  MTLStructType* s = m.structType;
  if (a) {
    if (a.elementArrayType || a.elementPointerType || a.elementTextureReferenceType) return @"?";
    return @[ @"array", @(a.elementType), @(a.arrayLength), @(a.stride), @(a.argumentIndexStride),
              fields(a.elementStructType) ];
  }
  if (t) return @[ @"texture", @(t.textureType), @(t.textureDataType), @(t.access), @(t.isDepthTexture) ];
  if (p) {
    if (p.elementArrayType) return @"?";
    return @[ @"pointer", @(p.elementType), @(p.access), @(p.alignment), @(p.dataSize), @(p.elementIsArgumentBuffer),
              fields(p.elementStructType) ];
  }
  return s ? fields(s) : @[];
}
static id fields(MTLStructType* type) {
  NSMutableArray* all = [NSMutableArray array];
  for (MTLStructMember* m in type.members) {
    if (![[type memberByName:m.name].name isEqualToString:m.name]) [all addObject:@"?"];
    [all addObject:@[ m.name, @(m.offset), @(m.dataType), @(m.argumentIndex), of(m) ]];
  }
  return all;
}
static void put(NSString* text) { printf("%s\n", text.UTF8String); }
static NSString* json(id value) {
  return [[[NSString alloc] initWithData:[NSJSONSerialization dataWithJSONObject:value options:0 error:NULL]
                                encoding:NSUTF8StringEncoding] autorelease];
}
#define BUFFER(b) d[@"bufferAlignment"] = @(b.bufferAlignment), d[@"bufferDataSize"] = @(b.bufferDataSize), \
  d[@"bufferDataType"] = @(b.bufferDataType), d[@"bufferStructType"] = fields(b.bufferStructType), \
  d[@"bufferPointerType"] = pointer(b.bufferPointerType)
#define GROUP(b) d[@"threadgroupMemoryAlignment"] = @(b.threadgroupMemoryAlignment), \
  d[@"threadgroupMemoryDataSize"] = @(b.threadgroupMemoryDataSize)
#define TEXTURE(b) d[@"textureType"] = @(b.textureType), d[@"textureDataType"] = @(b.textureDataType), \
  d[@"isDepthTexture"] = @(b.isDepthTexture), d[@"arrayLength"] = @(b.arrayLength)
static NSDictionary* binding(id<MTLBinding> b) {
  NSMutableDictionary* d = [NSMutableDictionary dictionary];
  d[@"name"] = b.name, d[@"type"] = @(b.type), d[@"access"] = @(b.access), d[@"index"] = @(b.index);
  d[@"used"] = @(b.isUsed), d[@"argument"] = @(b.isArgument);
  if (b.type == MTLBindingTypeBuffer) BUFFER(((id<MTLBufferBinding>)b));
  if (b.type == MTLBindingTypeThreadgroupMemory) GROUP(((id<MTLThreadgroupBinding>)b));
  if (b.type == MTLBindingTypeTexture) TEXTURE(((id<MTLTextureBinding>)b));
  return d;
}
static NSDictionary* argument(MTLArgument* b) {
  NSMutableDictionary* d = [NSMutableDictionary dictionary];
  d[@"name"] = b.name, d[@"type"] = @(b.type), d[@"access"] = @(b.access), d[@"index"] = @(b.index);
  d[@"used"] = @(b.isActive), d[@"argument"] = @YES;
  if (b.type == MTLArgumentTypeBuffer) BUFFER(b);
  if (b.type == MTLArgumentTypeThreadgroupMemory) GROUP(b);
  if (b.type == MTLArgumentTypeTexture) TEXTURE(b);
  return d;
}
int main(int argc, char** argv) {
  @autoreleasepool {
    device = MTLCreateSystemDefaultDevice();
    NSError* error = nil;
    id<MTLLibrary> library = [device newLibraryWithURL:[NSURL fileURLWithPath:@"kernels.metallib"] error:&error];
    if (!library) return put(error.localizedDescription), 1;
    put(json([library.functionNames sortedArrayUsingSelector:@selector(compare:)]));
    for (int i = 0; i < COUNT; ++i) {
      NSString* name = [NSString stringWithFormat:@"k%d", i];
      MTLComputePipelineReflection* said = nil;
      id<MTLComputePipelineState> state =
          [device newComputePipelineStateWithFunction:[[library newFunctionWithName:name] autorelease]
                                              options:MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo
                                           reflection:&said
                                                error:&error];
      if (!state) return put(error.localizedDescription), 1;
      NSMutableArray* rows = [NSMutableArray array];
      for (id<MTLBinding> b in said.bindings) [rows addObject:binding(b)];
      for (MTLArgument* a in said.arguments) [rows addObject:argument(a)];
      put(json(rows));
    }
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues new] autorelease];
    int three = 3;
    [values setConstantValue:&three type:MTLDataTypeInt atIndex:3];
    NSArray* names = @[ @"one", @"asks" ];
    for (NSString* name in names) {
      id<MTLFunction> f = [[library newFunctionWithName:name constantValues:values error:&error] autorelease];
      if (!f) return put(error.localizedDescription), 1;
      NSMutableArray* rows = [NSMutableArray array];
      NSDictionary<NSString*, MTLFunctionConstant*>* all = f.functionConstantsDictionary;
      for (NSString* key in [all.allKeys sortedArrayUsingSelector:@selector(compare:)]) {
        MTLFunctionConstant* c = all[key];
        [rows addObject:@[ c.name, @(c.type), @(c.index), @(c.required) ]];
      }
      id<MTLComputePipelineState> s = [device newComputePipelineStateWithFunction:f error:&error];
      NSArray* state = @[ @(s.maxTotalThreadsPerThreadgroup), @(s.threadExecutionWidth),
                          @(s.staticThreadgroupMemoryLength), @(s.supportIndirectCommandBuffers),
                          @(s.device == device), s.label ?: @"" ];
      f.label = @"named";
      NSArray* function = @[ f.name, @(f.functionType), @(f.options), @(f.device == device), f.label ];
      put(json(@[ function, rows, state ]));
    }
  }
  return 0;
}
"""
FUNCTIONS = """
kernel void one(device int* x) { x[0] = A; }
[[max_total_threads_per_threadgroup(64)]]
kernel void asks(device int* x, uint i [[thread_position_in_threadgroup]]) {
  threadgroup int t[9];
  t[i] = A;
  x[i] = t[0] + (is_function_constant_defined(B) ? int(B.x) : 0);
}
"""


def use(declared: str) -> str:
    """A body that names the parameter."""
    return "(void)x;" if "sampler" not in declared else "sampler y = x; (void)y;"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder: Path = tmp_path_factory.mktemp("reflection")
    kernels = [
        f"kernel void k{i}(device float* other, {declared}) {{ {use(declared)} }}\n"
        for i, declared in enumerate(PARAMETERS)
    ]
    (folder / "kernels.metal").write_text("".join([TYPES, *kernels, FUNCTIONS]))
    (folder / "host.m").write_text(HOST)
    right(metal_ops("metal", "kernels.metal", "-o", "kernels.metallib", cwd=folder))
    right(
        metal_ops(
            "objc",
            "-Wall",
            f"-DCOUNT={len(kernels)}",
            "host.m",
            "-o",
            "host",
            "-framework",
            "Metal",
            cwd=folder,
        )
    )
    return [json.loads(line) for line in right(command("./host", cwd=folder)).splitlines()]


@pytest.mark.parametrize("declared", PARAMETERS)
def test_parameters(declared: str, said: list[Any]) -> None:
    row = PARAMETERS[declared]
    rows = said[1 + list(PARAMETERS).index(declared)]
    by_bindings, by_arguments = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert by_bindings == by_arguments
    other, found = by_bindings
    assert found == {"name": "x", "index": found["index"], "used": 1, "argument": 1, **row}
    assert found["index"] == (1 if row["type"] in (0, 24) else 0)
    assert (other["name"], other["index"], other["used"]) == ("other", 0, 0)


def test_functions(said: list[Any]) -> None:
    names, one, asks = said[0], said[-2], said[-1]
    assert names == sorted([*(f"k{i}" for i in range(len(PARAMETERS))), "one", "asks"])
    assert one == [["one", 3, 0, 1, "named"], [["A", 29, 3, 1]], [1024, 32, 0, 0, 1, ""]]
    assert asks[1] == [["A", 29, 3, 1], ["B", 19, 0, 0]]
    assert asks[2] == [64, 32, 48, 0, 1, ""]


def declared_in(header: str, *names: str) -> set[str]:
    """Properties and methods of these protocols and classes."""
    text = (ROOT / "hostmetal/include/Metal" / header).read_text()
    found = set()
    for name in names:
        body = re.search(rf"^@(?:protocol|interface) {name} [:<].*?^@end", text, re.S | re.M)
        assert body, name
        for line in re.findall(r"^@property.*;", body[0], re.M):
            getter = re.search(r"getter=(\w+)", line)
            found.add(getter[1] if getter else re.findall(r"\w+", line)[-1])
        found |= set(re.findall(r"^- \([^)]*\)(\w+)", body[0], re.M))
    return found


def test_every_property_is_read() -> None:
    """A property that a header gains needs a row above."""
    properties = declared_in(
        "MTLArgument.h",
        *(
            "MTLType",
            "MTLStructMember",
            "MTLStructType",
            "MTLArrayType",
            "MTLPointerType",
            "MTLTextureReferenceType",
        ),
        *(
            "MTLBinding",
            "MTLBufferBinding",
            "MTLThreadgroupBinding",
            "MTLTextureBinding",
            "MTLArgument",
        ),
    )
    properties |= declared_in("MTLLibrary.h", "MTLFunctionConstant")
    assert {"arrayLength", "isUsed", "required", "argumentIndexStride"} < properties
    assert not {name for name in properties if not re.search(rf"[.\[ ]{name}\b", HOST)}


def test_every_field_of_a_library_is_set() -> None:
    """Fields and flags of the contract with compiled libraries: the compiler writes each."""
    contract = (ROOT / "hostmetal/msl/metallib_abi.h").read_text()
    writer = (ROOT / "python/metal_ops/metal/wrappers.py").read_text()
    for struct in ("argument", "function_constant", "kernel"):
        body = re.search(
            rf"typedef struct metallib_{struct} {{(.*?)}} metallib_{struct};", contract, re.S
        )
        assert body
        text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.S)
        for field in re.findall(r"(\w+)(?:\)\([^)]*\))?;", text):
            assert re.search(rf"\.{field} = ", writer), f"metallib_{struct}.{field}"
    for flag in re.findall(r"METALLIB_((?:ARG|CONSTANT|KERNEL)_[A-Z]+)(?= =)", contract):
        sources = [
            *(ROOT / "python/metal_ops/metal").glob("*.py"),
            *(ROOT / "hostmetal/msl/lib").glob("*.h"),  # flags of all kernels of a file
        ]
        assert any(flag in source.read_text() for source in sources), flag
