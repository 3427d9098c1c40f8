"""Shaders of the tests of tensors: kernels of one product each, whose sizes are the host's."""

from __future__ import annotations

from typing import NamedTuple

INCLUDES = """#include <metal_stdlib>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
"""

# Threadgroups of `scope` threads each have a tile of m x n. s: M, N, K of the whole matrices.
PRODUCTS = """
template <class A, class B, class D, int m, int n, int k, bool ta, bool tb, bool adds, class Scope>
kernel void product(device A* a [[buffer(0)]], device B* b [[buffer(1)]], device D* d [[buffer(2)]],
                    constant int* s [[buffer(3)]], uint2 at [[threadgroup_position_in_grid]]) {
  const int M = s[0], N = s[1], K = s[2];
  auto left = tensor(a, ta ? dextents<int, 2>(M, K) : dextents<int, 2>(K, M));
  auto right = tensor(b, tb ? dextents<int, 2>(K, N) : dextents<int, 2>(N, K));
  auto to = tensor(d, dextents<int, 2>(N, M)).slice(at.x * n, at.y * m);
  constexpr auto how = matmul2d_descriptor(m, n, k < 0 ? dynamic_length_v<int> : k, ta, tb, false,
      adds ? matmul2d_descriptor::mode::multiply_accumulate : matmul2d_descriptor::mode::multiply);
  matmul2d<how, Scope> op;
  const int step = k < 0 ? (K > 0 ? K : 1) : k;
  for (int i = 0; i < K; i += step) {
    auto l = ta ? left.slice(at.y * m, i) : left.slice(i, at.y * m);
    auto r = tb ? right.slice(i, at.x * n) : right.slice(at.x * n, i);
    op.run(l, r, to);
  }
}
"""


class Product(NamedTuple):
    """One instantiation of `product`: types, tile, transposes, mode and scope."""

    a: str
    b: str
    d: str
    m: int
    n: int
    k: int  # -1: dynamic
    ta: bool
    tb: bool
    adds: bool
    scope: str

    @property
    def name(self) -> str:
        how = "".join("ft"[flag] for flag in (self.ta, self.tb, self.adds))
        return f"{self.a}_{self.b}_{self.d}_{self.m}_{self.n}_{self.k}_{how}_{self.scope}".replace(
            "-", "d"
        )

    @property
    def simdgroups(self) -> int:
        return int(self.scope.rpartition("_")[2]) if self.scope[-1].isdigit() else 1

    def instantiation(self) -> str:
        scope = {"thread": "execution_thread", "simdgroup": "execution_simdgroup"}.get(
            self.scope, f"execution_simdgroups<{self.simdgroups}>"
        )
        flags = ", ".join(str(flag).lower() for flag in (self.ta, self.tb, self.adds))
        values = f"{self.a}, {self.b}, {self.d}, {self.m}, {self.n}, {self.k}, {flags}, {scope}"
        return f'template [[host_name("{self.name}")]] kernel decltype(product<{values}>) product<{values}>;\n'


TABLE = [
    Product("half", "half", "float", 64, 32, -1, False, False, False, "groups_4"),
    Product("half", "half", "half", 32, 32, -1, False, True, False, "simdgroup"),
    Product("bfloat", "bfloat", "bfloat", 16, 48, -1, True, False, False, "groups_2"),
    Product("float", "float", "float", 32, 64, 16, True, True, True, "groups_4"),
    Product("half", "int8_t", "float", 17, 9, 5, False, True, True, "simdgroup"),
    Product("int8_t", "int8_t", "int32_t", 64, 64, -1, False, False, False, "groups_3"),
    Product("uint8_t", "uint8_t", "int32_t", 8, 16, 32, False, False, True, "thread"),
    Product("float", "half", "float", 5, 7, -1, True, False, False, "thread"),
    Product("half", "bfloat", "half", 80, 70, -1, False, False, False, "simdgroup"),
]

# One simdgroup; all of its matrices lie with its lanes.
HELD = """
template <class T, class O>
void fill(thread T& t, device O* from, int line) {
  for (ushort i = 0; i < t.get_capacity(); ++i) {
    if (!t.is_valid_element(i)) continue;
    const auto at = t.get_multidimensional_index(i);
    t[i] = from[at[1] * line + at[0]];
  }
}
template <int m, int n, int k, bool ta, bool tb>
kernel void held(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* d [[buffer(2)]]) {
  constexpr auto how = matmul2d_descriptor(m, n, k, ta, tb, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<how, execution_simdgroup> op;
  auto left = op.template get_left_input_cooperative_tensor<half, half, float>();
  auto right = op.template get_right_input_cooperative_tensor<half, half, float>();
  auto sum = op.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  fill(left, a, ta ? m : k);
  fill(right, b, tb ? k : n);
  fill(sum, d, n);
  op.run(left, right, sum);
  for (auto it = sum.begin(); it != sum.end(); it++) {
    if (it.is_valid_element()) *it = max(*it, 0.0f);
  }
  sum.store(tensor(d, dextents<int, 2>(n, m)));
}
#define HELD(name, ...) template [[host_name(name)]] kernel decltype(held<__VA_ARGS__>) held<__VA_ARGS__>;
HELD("held_ff", 16, 32, 16, false, false)
HELD("held_ft", 16, 32, 16, false, true)
HELD("held_tf", 32, 24, 40, true, false)
HELD("held_tt", 9, 7, 5, true, true)

// Softmax of the rows of q kT, times v: a product's destination is the next one's operand.
kernel void attention(device float* q [[buffer(0)]], device float* key [[buffer(1)]], device float* v [[buffer(2)]],
                      device float* out [[buffer(3)]], device float* sums [[buffer(4)]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int m = 20, n = 24, depth = 16, width = 40;
  constexpr auto scores = matmul2d_descriptor(m, n, depth, false, true);
  constexpr auto mix = matmul2d_descriptor(m, width, n);
  matmul2d<scores, execution_simdgroup> first;
  matmul2d<mix, execution_simdgroup> second;
  auto tq = tensor(q, dextents<int, 2>(depth, m)), tk = tensor(key, dextents<int, 2>(depth, n));
  auto tv = tensor(v, dextents<int, 2>(width, n));
  auto s = first.get_destination_cooperative_tensor<decltype(tq), decltype(tk), float>();
  auto most = first.get_row_reduction_destination_cooperative_tensor<decltype(tq), decltype(tk), float>();
  auto all = first.get_row_reduction_destination_cooperative_tensor<decltype(tq), decltype(tk), float>();
  auto down = first.get_column_reduction_destination_cooperative_tensor<decltype(tq), decltype(tk), float>();
  first.run(tq, tk, s);
  reduce_rows(s, most, reduction_operation::max, reduction_operation_identity<float>::max_identity);
  for (auto it = s.begin(); it != s.end(); ++it) *it = it.is_valid_element() ? exp(*it - *most.map_iterator(it)) : 0;
  reduce_rows(s, all);
  reduce_columns(s, down, reduction_operation::sum);
  down.store(tensor(sums, dextents<int, 1>(n)));
  auto o = second.get_destination_cooperative_tensor<decltype(s), decltype(tv), float>();
  if (!second.is_compatible_as_left_input<float, float, float>(s)) return;
  auto weights = second.get_left_input_cooperative_tensor<float, float, float>(s);
  second.run(weights, tv, o);
  if (!is_iterator_compatible(o, all)) return;
  for (ushort i = 0; i < o.get_capacity(); ++i) o[i] /= *all.map_iterator(o.get_iterator(i));
  o.store(tensor(out, dextents<int, 2>(width, m)));
}

// Counts on a lane's 4 neighbours in each of 2 rows, as one machine has them.
kernel void one_machine(device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* d [[buffer(2)]],
                        uint lane [[thread_index_in_simdgroup]]) {
  constexpr auto how = matmul2d_descriptor(16, 16, 16);
  matmul2d<how, execution_simdgroup> op;
  auto left = op.get_left_input_cooperative_tensor<half, half, float>();
  auto right = op.get_right_input_cooperative_tensor<half, half, float>();
  auto sum = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  const uint row = (lane >> 2 & 4) | (lane >> 1 & 3), column = ((lane >> 2 & 2) | (lane & 1)) * 4;
  for (uint i = 0; i < 8; ++i) {
    left[i] = a[(row + i / 4 * 8) * 16 + column + i % 4];
    right[i] = b[(row + i / 4 * 8) * 16 + column + i % 4];
  }
  op.run(left, right, sum);
  for (uint i = 0; i < 8; ++i) d[(row + i / 4 * 8) * 16 + column + i % 4] = sum[i];
}

// Which lane and element has each number of a matrix of 19 x 21 over two simdgroups.
kernel void places(device int* owners [[buffer(0)]], device int* capacity [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  constexpr auto how = matmul2d_descriptor(19, 21, 8);
  matmul2d<how, execution_simdgroups<2>> op;
  typedef tensor<device half, dextents<int, 2>, tensor_inline> T;
  auto c = op.get_destination_cooperative_tensor<T, T, float>();
  capacity[i] = c.get_capacity();
  for (ushort e = 0; e < c.get_capacity(); ++e) {
    if (!c.is_valid_element(e)) continue;
    const auto at = c.get_multidimensional_index(e);
    owners[at[1] * 21 + at[0]] += 1 + int(i * 100 + e) * 16;
  }
}
"""

TENSORS = """
struct Arguments { tensor<device float, dextents<int, 2>> x; int more; };
kernel void handles(tensor<device float, dextents<int, 3>> x [[buffer(0)]], tensor<const device half, dextents<int, 2>> y [[buffer(1)]],
                    device float* out [[buffer(2)]], constant Arguments& given [[buffer(3)]]) {
  x[2, 1, 0] = 5;
  x[array<int, 3>{1, 0, 1}] += 1;
  auto s = x.slice(1, 0, 1);
  auto fixed = x.slice<2, dynamic_extent, 1>(0, 1, 1);
  out[0] = x.get_extent(0) * 100 + x.get_extent(1) * 10 + x.get_extent(2);
  out[1] = s[1, 1, 0];
  out[2] = s.get_extent(0) * 100 + s.get_extent(1) * 10 + s.get_extent(2);
  out[3] = fixed.get_extent(0) * 100 + fixed.get_extent(1) * 10 + fixed.get_extent(2);
  out[4] = fixed.get_static_extent(0) * 10 + (fixed.get_static_extent(1) == dynamic_extent);
  out[5] = y[1, 2];
  out[6] = y.get_stride(0) * 10 + y.get_stride(1);
  out[7] = sizeof(given.x) * 100 + given.x[1, 1] * 10 + given.more;
  out[8] = x.get_rank() * 1000 + is_tensor_handle_v<decltype(x)> * 100 + has_tensor_offset_v<decltype(s)> * 10 + is_tensor_inline_v<decltype(s)>;
  extents<int, 3, dynamic_extent> e(7), f(3, 7);
  out[9] = e.extent(0) * 100 + e.extent(1) * 10 + e.rank_dynamic();
  out[10] = e == f;
}
kernel void bias(tensor<device half, dextents<int, 2>> a, tensor<device half, dextents<int, 2>> b, tensor<device float, dextents<int, 2>> c,
                 threadgroup half* shared [[threadgroup(0)]], uint2 at [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {
  constexpr auto how = matmul2d_descriptor(32, 16, dynamic_length_v<int>);
  matmul2d<how, execution_simdgroups<2>> op;
  auto left = a.slice(0, at.y * 32);
  const int depth = a.get_extent(0);
  for (int n = i; n < depth * 16; n += 64) {  // the right operand is in threadgroup memory
    const int column = at.x * 16 + n % 16;
    shared[n] = column < b.get_extent(0) ? b[column, n / 16] : half(0);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  auto right = tensor(shared, extents<int, 16, dynamic_extent>(depth));
  auto to = c.slice(at.x * 16, at.y * 32);
  auto sum = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  auto before = op.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  op.run(left, right, sum);
  before.load(to);
  for (ushort e = 0; e < sum.get_capacity(); ++e) sum.set(e, sum.get(e) + 2 * before[e]);
  sum.store(to);
}
// Numbers of four bits, from an odd place on; t has them with n as the inner dimension, k has k.
kernel void four_bits(device half* a [[buffer(0)]], device uchar* t [[buffer(1)]], device uchar* k [[buffer(2)]],
                      device float* x [[buffer(3)]], device int* y [[buffer(4)]], device int8_t* b [[buffer(5)]]) {
  tensor<device int4b_format, dextents<int, 2>, tensor_inline> right(t, dextents<int, 2>(21, 19));
  tensor<device int4b_format, dextents<int, 2>, tensor_inline> turned(k, dextents<int, 2>(19, 21), array<int, 2>{1, 20});
  auto left = tensor(a, dextents<int, 2>(19, 16)).slice(1, 0);
  auto r = right.slice(1, 1);
  auto u = turned.slice(1, 1);
  auto bytes = tensor(b, dextents<int, 2>(19, 16)).slice(1, 0);
  auto sums = tensor(x, dextents<int, 2>(20, 16));
  auto exact = tensor(y, dextents<int, 2>(20, 16));
  matmul2d<matmul2d_descriptor(16, 32, dynamic_length_v<int>), execution_simdgroup> op;
  matmul2d<matmul2d_descriptor(16, 32, dynamic_length_v<int>, false, true), execution_simdgroup> by_rows;
  op.run(left, r, sums);
  by_rows.run(bytes, u, exact);
}
"""
