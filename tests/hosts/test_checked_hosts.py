"""HOSTMETAL_CHECK of a host's libraries beside the other variables that choose kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .test_hosts import command, metal_ops, right

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has Xcode's validation")

KERNELS = """#include <metal_stdlib>
using namespace metal;
kernel void over(device float* out, uint i [[thread_position_in_grid]]) { out[i + 64] = i; }
kernel void turn(device float* out, uint t [[thread_index_in_threadgroup]]) {
  threadgroup float s[64];
  s[t] = t;
  out[t] = s[63 - t];
}
"""
HOST = r"""
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
int main(int argc, char** argv) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    NSError* error = nil;
    NSString* path = [NSString stringWithUTF8String:argv[1]];
    NSString* text = [NSString stringWithContentsOfFile:path encoding:NSUTF8StringEncoding error:NULL];
    id<MTLLibrary> library = [path hasSuffix:@".metal"]
        ? [device newLibraryWithSource:text options:nil error:&error]
        : [device newLibraryWithURL:[NSURL fileURLWithPath:path] error:&error];
    if (!library) return printf("library: %s\n", [[error localizedDescription] UTF8String]), 0;
    id<MTLFunction> function = [library newFunctionWithName:[NSString stringWithUTF8String:argv[2]]];
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithFunction:function error:&error];
    if (!state) return printf("pipeline: %s\n", [[error localizedDescription] UTF8String]), 0;
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder =
        [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    [encoder setComputePipelineState:state];
    for (int k = 0; k < 3; ++k) {
      [encoder setBuffer:[device newBufferWithLength:256 options:0] offset:0 atIndex:0];
      [encoder dispatchThreads:MTLSizeMake(64, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    }
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    printf("%s\n", commands.error ? [[commands.error localizedDescription] UTF8String] : "no error");
  }
  return 0;
}
"""
PAST = "[over] write of 4 bytes at offset 256 (index 64) of buffer(0) 'out', which has 256 bytes"
RACE = "[turn] race: "
ALONE = "holds the kernels of HOSTMETAL_CHECK alone; set HOSTMETAL_CHECK=bounds (or race, init, barrier, alias), or"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checked")
    (folder / "k.metal").write_text(KERNELS)
    (folder / "host.m").write_text(HOST)
    right(metal_ops("objc", "host.m", "-o", "host", cwd=folder))
    right(metal_ops("metal", "-fshader-checks", "k.metal", "-o", "checks.metallib", cwd=folder))
    right(metal_ops("metal", "-fshader-validation-only", "k.metal", "-o", "v.metallib", cwd=folder))
    return folder


@pytest.mark.parametrize(
    "library, kernel, environment, says",
    [
        ("k.metal", "over", {"HOSTMETAL_CHECK": "race"}, "no error"),
        ("k.metal", "over", {"HOSTMETAL_CHECK": "race", "METAL_DEVICE_WRAPPER_TYPE": "0"}, "no error"),
        ("k.metal", "over", {"HOSTMETAL_CHECK": "race", "METAL_DEVICE_WRAPPER_TYPE": "1"}, PAST),
        ("k.metal", "over", {"HOSTMETAL_SCHEDULE": "one-simdgroup", "METAL_DEVICE_WRAPPER_TYPE": "1"}, PAST),
        ("checks.metallib", "over", {"HOSTMETAL_CHECK": "init", "METAL_DEVICE_WRAPPER_TYPE": "1"}, PAST),
        ("checks.metallib", "turn", {"HOSTMETAL_CHECK": "race"}, RACE),
        ("checks.metallib", "over", {}, ALONE),
        ("checks.metallib", "over", {"METAL_DEVICE_WRAPPER_TYPE": "1"}, ALONE),
        ("v.metallib", "over", {}, "holds bounds-checked kernels alone; set METAL_DEVICE_WRAPPER_TYPE=1"),
        ("v.metallib", "over", {"METAL_DEVICE_WRAPPER_TYPE": "1"}, PAST),
        ("k.metal", "turn", {"HOSTMETAL_CHECK": "race", "HOSTMETAL_DEBUG": "1"}, "by thread (32, 0, 0) of threadgroup "
         "(0, 0, 0) at program_source:6, and read by thread (31, 0, 0) at program_source:7"),
        ("k.metal", "turn", {"HOSTMETAL_CHECK": "race", "HOSTMETAL_COVERAGE": "counts"}, RACE),
    ],
)  # fmt: skip
def test_variables_that_meet(built, library, kernel, environment, says) -> None:
    """No variable switches off what another one asks for."""
    said = right(command("./host", library, kernel, cwd=built, **environment))
    assert says in said
    assert (RACE in said) == (kernel == "turn"), said
    assert said.count(RACE) <= 1  # of three dispatches that say the same
    if "HOSTMETAL_COVERAGE" in environment:
        assert {file.suffix for file in (built / "counts").iterdir()} == {".metallib", ".profraw"}
