"""Textures: reads, writes and samples of kernels, of every format, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from metal_ops.metal.launch import Sampler, Texture

from .shaders import library

RNG = np.random.default_rng(7)


def to_srgb(x):
    return np.where(x <= 0.0031308, x * 12.92, 1.055 * np.maximum(x, 1e-9) ** (1 / 2.4) - 0.055)


def from_srgb(x):
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


# name: dtype, the value of the stored number v, the stored number for x, keyword arguments of Texture.
STORED = {
    "unorm8": ("u1", lambda v: v / 255, lambda x: np.rint(np.clip(x, 0, 1) * 255), {"normalized": True}),
    "snorm8": ("i1", lambda v: np.maximum(v / 127, -1), lambda x: np.rint(np.clip(x, -1, 1) * 127), {"normalized": True}),
    "unorm16": ("u2", lambda v: v / 65535, lambda x: np.rint(np.clip(x, 0, 1) * 65535), {"normalized": True}),
    "snorm16": ("i2", lambda v: np.maximum(v / 32767, -1), lambda x: np.rint(np.clip(x, -1, 1) * 32767), {"normalized": True}),
    "float16": ("f2", lambda v: v, lambda x: x, {}),
    "float32": ("f4", lambda v: v, lambda x: x, {}),
}  # fmt: skip
COPY = """
kernel void load(texture2d<float, access::read> t [[texture(2)]], device float4* out [[buffer(0)]],
                 uint2 at [[thread_position_in_grid]], uint2 n [[threads_per_grid]]) {
  out[at.y * n.x + at.x] = t.read(at);
}
kernel void store(texture2d<float, access::write> t [[texture(2)]], device const float4* in [[buffer(0)]],
                  uint2 at [[thread_position_in_grid]], uint2 n [[threads_per_grid]]) {
  t.write(in[at.y * n.x + at.x], at);
}"""


@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("components", [1, 2, 4])
@pytest.mark.parametrize("name", STORED)
def test_floating_formats(name, components, checked):
    dtype, mean, store, options = STORED[name]
    code = library(COPY, checked=checked)
    values = RNG.normal(0, 1, (1, 5, 7, components))
    pixels = (values if dtype[0] == "f" else RNG.integers(-(2**15), 2**15, values.shape)).astype(
        dtype
    )
    # Grids larger than the texture: outside, zero is read and nothing is written.
    out = np.full((6, 9, 4), 9, np.float32)
    code["load"].run((9, 6), (4, 4), {0: out}, textures={2: Texture(pixels, **options)})
    expected = np.zeros((6, 9, 4))
    expected[:5, :7, 3] = 1
    expected[:5, :7, :components] = mean(pixels[0].astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=2e-7)

    given = RNG.normal(0, 1, (6, 9, 4)).astype(np.float32)
    target = np.zeros_like(pixels)
    code["store"].run((9, 6), (4, 4), {0: given}, textures={2: Texture(target, **options)})
    np.testing.assert_array_equal(target[0], store(given[:5, :7, :components]).astype(dtype))


def test_order_and_curve_of_components():
    """BGRA8Unorm_sRGB: blue first, alpha without the curve."""
    code = library(COPY)
    pixels = RNG.integers(0, 256, (1, 4, 64, 4)).astype("u1")
    options = {"normalized": True, "bgra": True, "srgb": True}
    out = np.zeros((4, 64, 4), np.float32)
    code["load"].run((64, 4), (8, 4), {0: out}, textures={2: Texture(pixels, **options)})
    expected = pixels[0] / 255
    expected[..., :3] = from_srgb(expected[..., 2::-1])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-7)
    target = np.zeros_like(pixels)
    code["store"].run((64, 4), (8, 4), {0: out}, textures={2: Texture(target, **options)})
    np.testing.assert_array_equal(target, pixels)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_integer_formats(dtype):
    """Reads widen, writes saturate."""
    component = "int" if dtype[0] == "i" else "uint"
    code = library(f"""
        kernel void k(texture2d<{component}, access::read> in, texture2d<{component}, access::write> out,
                      constant int& by, uint2 at [[thread_position_in_grid]]) {{
          out.write(in.read(at) * by, at);
        }}""")
    limits = np.iinfo(dtype)
    pixels = RNG.integers(limits.min // 4, limits.max // 4, (1, 6, 8, 4), endpoint=True).astype(
        dtype
    )
    out = np.zeros_like(pixels)
    by = np.int32(1 if dtype[1] == "4" else 7)
    code["k"].run((8, 6), (8, 6), {0: by}, textures={0: Texture(pixels), 1: Texture(out)})
    expected = np.clip(pixels.astype(np.int64) * int(by), limits.min, limits.max)
    np.testing.assert_array_equal(out, expected)


def test_shapes_of_textures():
    """Every class of texture reads, writes and says its size; half and ushort coordinates are taken."""
    code = library("""
        kernel void k(texture1d<float, access::read> a [[texture(0)]], texture2d_array<half, access::read_write> b [[texture(5)]],
                      texture3d<float, access::read_write> c [[texture(1)]], texture_buffer<uint, access::read> d [[texture(2)]],
                      texture1d_array<float, access::write> e [[texture(3)]], device uint* sizes,
                      ushort3 at [[thread_position_in_grid]]) {
          b.write(b.read(at.xy, at.z) * 2.0h, at.xy, at.z);
          c.write(c.read(at) + a.read(uint(at.x)), at);
          e.write(float4(at.x + 10 * at.z), uint(at.x), uint(at.z));
          const uint all[] = {a.get_width(), b.get_width(), b.get_height(), b.get_array_size(), c.get_width(), c.get_height(),
                              c.get_depth(), c.get_num_mip_levels(), d.get_width(), d.read(2).x, e.get_array_size(), is_null_texture(a)};
          for (uint i = 0; i < 12; ++i) sizes[i] = all[i];
        }""")
    kinds = {
        a["name"]: (a["kind"], a["type"], a["index"], a["written"]) for a in code["k"].arguments
    }
    assert kinds["b"] == ("texture", "texture2d_array<half, access::read_write>", 5, True)
    assert kinds["d"] == ("texture", "texture_buffer<uint, access::read>", 2, False)
    a, b = np.arange(4, dtype="f4").reshape(1, 1, 4, 1), RNG.normal(size=(2, 3, 4, 2)).astype("f2")
    c, d = RNG.normal(size=(2, 3, 4, 1)).astype("f4"), np.array([5, 6, 7], "u4").reshape(1, 1, 3, 1)
    e, sizes = np.zeros((2, 1, 4, 1), "f4"), np.zeros(12, np.uint32)
    expected_b, expected_c = b * np.float16(2), c + np.arange(4, dtype="f4").reshape(4, 1)
    code["k"].run((4, 3, 2), (4, 3, 2), {0: sizes}, textures={
        0: Texture(a), 5: Texture(b, is_array=True), 1: Texture(c), 2: Texture(d), 3: Texture(e, is_array=True)})  # fmt: skip
    np.testing.assert_array_equal(b, expected_b)
    np.testing.assert_array_equal(c, expected_c)
    np.testing.assert_array_equal(e[:, 0, :, 0], [[0, 1, 2, 3], [10, 11, 12, 13]])
    np.testing.assert_array_equal(sizes, [4, 4, 3, 2, 4, 3, 2, 1, 3, 7, 2, 0])


EDGES = {
    "clamp_to_edge": 0,
    "repeat": 2,
    "mirrored_repeat": 3,
    "clamp_to_zero": 4,
    "clamp_to_border": 5,
}


def texel(image, i, mode, border):
    """Pixel i of image [height, width, 4], by the rule for coordinates outside."""
    at = []
    for k, n in zip(i, image.shape[1::-1], strict=True):
        if mode == "repeat":
            k %= n
        elif mode == "mirrored_repeat":
            k %= 2 * n
            k = k if k < n else 2 * n - 1 - k
        elif mode == "clamp_to_edge":
            k = min(max(k, 0), n - 1)
        elif not 0 <= k < n:
            return np.zeros(4) if mode == "clamp_to_zero" else border
        at.append(k)
    return image[at[1], at[0]]


def sampled(image, at, mode, linear, border, offset=(0, 0)):
    if not linear:
        return texel(
            image, [int(np.floor(x)) + o for x, o in zip(at, offset, strict=True)], mode, border
        )
    base = [int(np.floor(x - 0.5)) for x in at]
    part = [x - 0.5 - b for x, b in zip(at, base, strict=True)]
    total = np.zeros(4)
    for dx, dy in itertools.product((0, 1), repeat=2):
        weight = (part[0] if dx else 1 - part[0]) * (part[1] if dy else 1 - part[1])
        i = (base[0] + dx + offset[0], base[1] + dy + offset[1])
        total += weight * texel(image, i, mode, border)
    return total


def test_edges_of_one_axis():
    """s_address, t_address and r_address are about one axis each, the others keep clamp_to_edge."""
    wanted = [(axis, mode) for axis in range(3) for mode in EDGES]
    lines = "".join(
        f"{{ constexpr sampler s(coord::pixel, filter::nearest, border_color::opaque_white, {'str'[axis]}_address::{mode});\n"
        f"out[{i} * n + at] = t.sample(s, float3(3.5, 2.5, 1.5) + where[at]).x; }}\n"
        for i, (axis, mode) in enumerate(wanted)
    )
    code = library(
        f"""kernel void k(texture3d<float> t, device float* out, constant packed_float3* where, constant uint& n,
                          uint at [[thread_position_in_grid]]) {{ {lines} }}"""
    )
    volume = RNG.normal(size=(4, 5, 7, 1)).astype("f4")  # depth, height, width
    steps = np.arange(-12, 13)
    moves = np.zeros((3 * steps.size, 3), "f4")
    for axis in range(3):
        moves[axis * steps.size : (axis + 1) * steps.size, axis] = steps
    out = np.zeros((len(wanted), len(moves)), "f4")
    code["k"].run(
        len(moves), 32, {0: out, 1: moves, 2: np.uint32(len(moves))}, textures={0: Texture(volume)}
    )
    for row, (axis, mode) in zip(out, wanted, strict=True):
        for seen, move in zip(row, moves.astype(int), strict=True):
            at, inside = [], True
            for k, size in enumerate((7, 5, 4)):
                x = (3, 2, 1)[k] + move[k]
                edge = mode if k == axis else "clamp_to_edge"
                inside &= edge not in ("clamp_to_zero", "clamp_to_border") or 0 <= x < size
                turn = x % (2 * size)
                at.append(
                    x % size if edge == "repeat"
                    else min(turn, 2 * size - 1 - turn) if edge == "mirrored_repeat"
                    else min(max(x, 0), size - 1)
                )  # fmt: skip
            expected = (
                volume[at[2], at[1], at[0], 0] if inside else float(mode == "clamp_to_border")
            )
            assert seen == np.float32(expected), (mode, axis, move)


@pytest.mark.parametrize("where", ["constexpr", "bound"])
@pytest.mark.parametrize("coordinates", ["normalized", "pixel"])
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("mode", EDGES)
def test_sampling(mode, filter, coordinates, where):
    """Samplers written into the shader, and those that the program makes."""
    properties = (
        f"coord::{coordinates}, filter::{filter}, address::{mode}, border_color::opaque_white"
    )
    code = library(f"""
        constexpr sampler fixed({properties});
        kernel void k(texture2d<float> t, sampler bound, device float4* out, constant float2* at, constant int2& offset,
                      uint i [[thread_position_in_grid]]) {{
          sampler s = {"fixed" if where == "constexpr" else "bound"};
          out[2 * i] = t.sample(s, at[i]);
          out[2 * i + 1] = t.sample(s, at[i], level(0), offset);
        }}""")
    image = RNG.normal(size=(3, 5, 4)).astype("f4")
    at = (RNG.uniform(-1.2, 2.2, (200, 2)) * (5, 3)).astype("f4")
    state = Sampler(
        (EDGES[mode],) * 3, *(int(filter == "linear"),) * 2, 0, 2, coordinates == "pixel", 0, 1000
    )
    given = at if coordinates == "pixel" else (at / np.float32([5, 3])).astype("f4")
    out, offset = np.zeros((200, 2, 4), "f4"), np.array([2, -1], np.int32)
    code["k"].run(
        200,
        64,
        {0: out, 1: given, 2: offset},
        textures={0: Texture(image[None])},
        samplers={0: state},
    )
    for i in range(200):
        place = (
            given[i].astype(float) if coordinates == "pixel" else given[i].astype(float) * (5, 3)
        )
        if filter == "nearest" and np.abs(place - np.rint(place)).min() < 1e-5:
            continue  # float and float64 may fall to two sides of the edge
        for row, shift in ((0, (0, 0)), (1, offset)):
            expected = sampled(image, place, mode, filter == "linear", np.ones(4), shift)
            # Weights are differences of float32 coordinates of up to 11.
            np.testing.assert_allclose(out[i, row], expected, atol=1e-5, err_msg=f"{place} {shift}")


def test_levels_gradients_and_gather():
    """The mipmap level that is taken, the mix of two; and the four pixels of gather."""
    code = library("""
        constexpr sampler near(mip_filter::nearest), mixed(mip_filter::linear), off(filter::linear), clamped(mip_filter::linear, lod_clamp(0.25, 1.5));
        kernel void k(texture2d<float> t, device float4* out) {
          const float2 c(0.5);
          out[0] = float4(t.sample(near, c, level(0.4)).x, t.sample(near, c, level(0.6)).x, t.sample(near, c, level(9)).x, t.sample(off, c, level(2)).x);
          out[1] = float4(t.sample(mixed, c, level(0.25)).x, t.sample(mixed, c, level(1.5)).x, t.sample(clamped, c, level(2)).x, t.sample(clamped, c).x);
          out[2] = float4(t.sample(mixed, c, gradient2d(float2(0.5, 0), float2(0, 0.25))).x, t.sample(mixed, c, bias(1)).x, t.sample(mixed, c, level(1), min_lod_clamp(1.75)).x, t.read(uint2(0), 2).x);
          out[3] = t.gather(off, float2(0.3, 0.7));
          out[4] = t.gather(off, float2(0.3, 0.7), int2(1, 0), component::y);
        }""")
    # One block of memory, level after level; each level is one number, 0, 10 and 20, except gather's green.
    block = np.zeros((16 + 4 + 1, 2), "f4")
    levels = [
        block[:16].reshape(1, 4, 4, 2),
        block[16:20].reshape(1, 2, 2, 2),
        block[20:].reshape(1, 1, 1, 2),
    ]
    for i, level in enumerate(levels):
        level[...] = 10 * i
    levels[0][0, :, :, 1] = np.arange(16).reshape(4, 4)
    out = np.zeros((5, 4), "f4")
    code["k"].run(1, 1, {0: out}, textures={0: Texture(*levels)})
    np.testing.assert_allclose(out[0], [0, 10, 20, 0])
    np.testing.assert_allclose(out[1], [2.5, 15, 15, 2.5])
    np.testing.assert_allclose(out[2], [10, 10, 17.5, 20])  # half of four pixels a step: level 1
    np.testing.assert_allclose(out[3], [0, 0, 0, 0])
    # (0.3, 0.7) is (1.2, 2.8) in pixels: columns 0 and 1, moved by one; rows 2 and 3.
    np.testing.assert_allclose(out[4], [13, 14, 10, 9])


def test_reads_anywhere_are_safe():
    """NaN, infinities and far coordinates give some pixel or zero, never memory outside."""
    code = library("""
        constexpr sampler s(filter::linear, address::repeat);
        kernel void k(texture2d<float> t, device float4* out, device const float2* at, uint i [[thread_position_in_grid]]) {
          out[i] = t.sample(s, at[i]) + t.read(uint2(as_type<uint2>(at[i])), as_type<uint>(at[i].x));
        }""")
    at = np.array(
        [[np.nan, 0.5], [np.inf, -np.inf], [1e30, -1e30], [3.4e38, np.nan], [-0.0, 1e9]], "f4"
    )
    out = np.full((5, 4), np.nan, "f4")
    code["k"].run(5, 5, {0: out, 1: at}, textures={0: Texture(np.ones((1, 3, 3, 4), "f4"))})
    np.testing.assert_allclose(out, np.ones((5, 4)), rtol=1e-6)
