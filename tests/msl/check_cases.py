"""Kernels with a fault each, and the same without it: the faults that HOSTMETAL_CHECK is to report, and those that it
is not.

In a fault's kernel, the lines that the report has to name end with `//!`. All kernels take the same arguments and run as
two threadgroups of 64 threads.
"""

from __future__ import annotations

from typing import NamedTuple

ARGUMENTS = """(device const float* in, device float* out, device atomic_uint* count, device uchar* bytes,
    uint t [[thread_index_in_threadgroup]], uint i [[thread_position_in_grid]], uint g [[threadgroup_position_in_grid]])"""


class Case(NamedTuple):
    """A fault.

    Attributes:
      check: that finds it.
      wrong: the kernel's body.
      right: without the fault.
      says: what the sentence has in it.
      before: what stands before both kernels.
    """

    check: str
    wrong: str
    right: str
    says: str
    before: str = ""


TILE = "threadgroup float s[64];\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
STORE = "s[t] = in[i]; //!\n"

# %: what is behind the first line, what is before the last one and behind it.
LAST = """out[i] = in[i];%s
simdgroup_barrier(mem_flags::mem_device);
bool last = false;
if (t %% 32 == 0) {
atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);
last = atomic_fetch_add_explicit(count, 1, memory_order_relaxed) == 3;
atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);
}
if (!simd_any(last)) return;
%sout[t %% 32] += out[t %% 32 + 32] + out[t %% 32 + 64] + out[t %% 32 + 96];%s
"""

CASES = {
    "no barrier": Case(
        "race",
        TILE + STORE + "out[i] = s[63 - t]; //!\n",
        TILE + STORE + BARRIER + "out[i] = s[63 - t];\n",
        "call threadgroup_barrier(mem_flags::mem_threadgroup) between them",
    ),
    "flags of device memory": Case(
        "race",
        TILE + STORE + "threadgroup_barrier(mem_flags::mem_device); //!\nout[i] = s[63 - t]; //!\n",
        TILE + STORE + "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\nout[i] = s[63 - t];\n",
        "does not order threadgroup memory: give it mem_flags::mem_threadgroup",
    ),
    "no flags": Case(
        "race",
        TILE + STORE + "threadgroup_barrier(mem_flags::mem_none); //!\nout[i] = s[63 - t]; //!\n",
        TILE + STORE + BARRIER + "threadgroup_barrier(mem_flags::mem_none);\nout[i] = s[63 - t];\n",
        "does not order threadgroup memory",
    ),
    "flags of threadgroup memory": Case(
        "race",
        "out[i] = in[i]; //!\n" + BARRIER.replace("\n", " //!\n") + "float x = out[g * 64 + 63 - t]; //!\n"
        "threadgroup_barrier(mem_flags::mem_device);\nout[i] = x;\n",
        "out[i] = in[i];\nthreadgroup_barrier(mem_flags::mem_device);\nfloat x = out[g * 64 + 63 - t];\n"
        "threadgroup_barrier(mem_flags::mem_device);\nout[i] = x;\n",
        "does not order device memory: give it mem_flags::mem_device",
    ),
    "in place": Case(
        "race",
        TILE + STORE.replace(" //!", "") + BARRIER + "s[t] += s[(t + 1) % 64]; //!\n" + BARRIER + "out[i] = s[t];\n",
        TILE + STORE + BARRIER + "float x = s[(t + 1) % 64];\n" + BARRIER + "s[t] += x;\n" + BARRIER + "out[i] = s[t];\n",
        "of threadgroup memory 's'",
    ),
    "one past its own": Case(
        "race",
        "threadgroup float s[65];\ns[t] = 1; //!\ns[t + 1] = in[i]; //!\n" + BARRIER + "out[i] = s[t];\n",
        "threadgroup float s[65];\ns[t] = 1;\n" + BARRIER + "out[i] = s[t];\n",
        "write of 4 bytes",
    ),
    "the next round": Case(
        "race",
        TILE + "float x = 0;\nfor (int k = 0; k < 3; ++k) {\ns[t] = in[i] + k; //!\n" + BARRIER + "x += s[63 - t]; //!\n}\nout[i] = x;\n",
        TILE + "float x = 0;\nfor (int k = 0; k < 3; ++k) {\ns[t] = in[i] + k;\n" + BARRIER + "x += s[63 - t];\n" + BARRIER + "}\nout[i] = x;\n",
        "call threadgroup_barrier",
    ),
    "a sum of all": Case(
        "race",
        "out[0] += in[i]; //!\n",
        "atomic_fetch_add_explicit(count, uint(in[i]), memory_order_relaxed);\n",
        "make it an atomic update",
    ),
    "a histogram": Case(
        "race",
        "threadgroup uint h[4];\nif (t < 4) h[t] = 0;\n" + BARRIER + "h[t % 4] += 1; //!\n" + BARRIER + "if (t < 4) out[g * 64 + t] = h[t];\n",
        "threadgroup atomic_uint h[4];\nif (t < 4) atomic_store_explicit(&h[t], 0, memory_order_relaxed);\n" + BARRIER
        + "atomic_fetch_add_explicit(&h[t % 4], 1, memory_order_relaxed);\n" + BARRIER
        + "if (t < 4) out[g * 64 + t] = atomic_load_explicit(&h[t], memory_order_relaxed);\n",
        "index 0) of threadgroup memory 'h'",
    ),
    "in step": Case(
        "race",
        TILE + STORE + "out[i] = s[t ^ 1]; //!\n",
        TILE + STORE + "simdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[t ^ 1];\n",
        "the threads of a simdgroup need not run in step: call simdgroup_barrier(mem_flags::mem_threadgroup)",
    ),
    "functions of a simdgroup order nothing": Case(
        "race",
        TILE + STORE + "float x = simd_sum(in[i]);\nout[i] = s[t ^ 1] + x; //!\n",
        TILE + STORE + "float x = simd_sum(in[i]);\nsimdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[t ^ 1] + x;\n",
        "need not run in step",
    ),
    "only a simdgroup's barrier": Case(
        "race",
        TILE + STORE + "simdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[63 - t]; //!\n",
        TILE + STORE + BARRIER + "out[i] = s[63 - t];\n",
        "call threadgroup_barrier(mem_flags::mem_threadgroup)",
    ),
    "matrices": Case(
        "race",
        TILE + "threadgroup float m[64];\nsimdgroup_float8x8 a = simdgroup_float8x8(in[0]);\nif (t < 32) {\n"
        "simdgroup_store(a, m, 8); //!\n}\nout[i] = m[63 - t]; //!\n",
        TILE + "threadgroup float m[64];\nsimdgroup_float8x8 a = simdgroup_float8x8(in[0]);\nif (t < 32) {\n"
        "simdgroup_store(a, m, 8);\n}\n" + BARRIER + "out[i] = m[63 - t];\n",
        "of threadgroup memory 'm'",
    ),
    "an atomic and a plain access": Case(
        "race",
        "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed);\n" + BARRIER
        + "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed); //!\nout[i] = *(threadgroup uint*)&n; //!\n",
        "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed);\n" + BARRIER
        + "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);\n" + BARRIER + "out[i] = *(threadgroup uint*)&n;\n",
        "make both atomic, or call threadgroup_barrier",
    ),
    "the neighbouring threadgroup's": Case(
        "race",
        "out[i] = in[i]; //!\nthreadgroup_barrier(mem_flags::mem_device);\nif (i >= 64) out[i] += out[i - 64]; //!\n",
        "out[i] = in[i];\nthreadgroup_barrier(mem_flags::mem_device);\nif (t >= 32) out[i] += out[i - 32];\n",
        "no barrier orders threadgroups",
    ),
    "the last one without a fence": Case(
        "race",
        "threadgroup uint before;\nout[i] = in[i]; //!\nthreadgroup_barrier(mem_flags::mem_device);\n"
        "if (t == 0) before = atomic_fetch_add_explicit(count, 1, memory_order_relaxed);\n" + BARRIER
        + "if (before == 1 && t == 0) out[0] = out[0] + out[64]; //!\n",
        "threadgroup uint before;\nout[i] = in[i];\nthreadgroup_barrier(mem_flags::mem_device);\nif (t == 0) {\n"
        "atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);\n"
        "before = atomic_fetch_add_explicit(count, 1, memory_order_relaxed);\n"
        "atomic_thread_fence(mem_flags::mem_device, memory_order_acq_rel, thread_scope_device);\n}\n"
        "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\n"
        "if (before == 1 && t == 0) out[0] = out[0] + out[64];\n",
        "no barrier orders threadgroups",
    ),
    "bytes": Case(
        "race",
        "bytes[i] = 1; //!\nbytes[i ^ 1] = 2; //!\n",
        "bytes[i] = 1;\nthreadgroup uchar b[64];\nb[t] = t;\nhalf2 unused = half2(0);\n(void)unused;\n",
        "write of 1 bytes",
    ),
    "in a function": Case(
        "race",
        TILE + "put(s, t, in[i]);\nout[i] = s[63 - t]; //!\n",
        TILE + "put(s, t, in[i]);\n" + BARRIER + "out[i] = s[63 - t];\n",
        "of threadgroup memory 's'",
        before="inline void put(threadgroup float* s, uint t, float x) {\ns[t] = x; //!\n}\n",
    ),
    "a barrier in a branch": Case(
        "barrier",
        "if (t < 40) {\n" + BARRIER.replace("\n", " //!\n") + "}\nout[i] = in[i];\n",
        "if (g < 1) {\n" + BARRIER + "}\nout[i] = in[i];\n",
        "is reached by 40 of the 64 threads of a threadgroup, in threadgroup (0, 0, 0); thread (40, 0, 0) has ended",
    ),
    "barriers in two branches": Case(
        "barrier",
        "if (t < 40) {\n" + BARRIER.replace("\n", " //!\n") + "} else {\n" + BARRIER.replace("\n", " //!\n") + "}\nout[i] = in[i];\n",
        "if (t < 40) out[i] = 1;\nelse out[i] = 2;\n" + BARRIER,
        "thread (40, 0, 0) waits at",
    ),
    "an early end": Case(
        "barrier",
        "if (i >= 100) return;\n" + BARRIER.replace("\n", " //!\n") + "out[i] = in[i];\n",
        BARRIER + "if (i >= 100) return;\nout[i] = in[i];\n",
        "is reached by 36 of the 64 threads of a threadgroup, in threadgroup (1, 0, 0); thread (36, 0, 0) has ended",
    ),
    "a simdgroup's barrier in a branch": Case(
        "barrier",
        "if (t % 32 < 5) simdgroup_barrier(mem_flags::mem_threadgroup); //!\nout[i] = in[i];\n",
        "if (t / 32 < 1) simdgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = in[i];\n",
        "is reached by 5 of the 32 threads of a simdgroup",
    ),
    "the last simdgroup": Case(
        "race",
        LAST % (" //!", "", " //!"),
        LAST % ("", "simdgroup_barrier(mem_flags::mem_device);\n", ""),
        "are not ordered",
    ),
    "a counter's start": Case(
        "race",
        "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed); //!\n"
        "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed); //!\n" + BARRIER + "out[i] = atomic_load_explicit(&n, memory_order_relaxed);\n",
        "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed);\n" + BARRIER
        + "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);\n" + BARRIER + "out[i] = atomic_load_explicit(&n, memory_order_relaxed);\n",
        "call threadgroup_barrier(mem_flags::mem_threadgroup) between them",
    ),
    "a variable without a value": Case(
        "init",
        "float sum; //!\nfor (int k = 0; k < 4; ++k) sum += in[k];\nout[i] = sum; //!\n",
        "float sum = 0;\nfor (int k = 0; k < 4; ++k) sum += in[k];\nout[i] = sum;\n",
        "the variable without a value",
    ),
    "an array's last element": Case(
        "init",
        "float a[5]; //!\nfor (int k = 0; k < 4; ++k) a[k] = in[k];\nfloat sum = 0;\nfor (int k = 0; k < 5; ++k) sum += a[(k + t) % 5];\n"
        "out[i] = sum; //!\n",
        "float a[5];\nfor (int k = 0; k < 5; ++k) a[k] = in[k];\nfloat sum = 0;\nfor (int k = 0; k < 5; ++k) sum += a[(k + t) % 5];\nout[i] = sum;\n",
        "is stored to a buffer",
    ),
    "set in a branch": Case(
        "init",
        "int n; //!\nif (in[i] > 900) n = 1;\nif (n > 0) out[i] = 1; //!\n",
        "int n = 0;\nif (in[i] > 900) n = 1;\nif (n > 0) out[i] = 1;\n",
        "decides a branch",
    ),
    "an address from nothing": Case(
        "init",
        "threadgroup uint at[64];\nif (t < 60) at[t] = t;\n" + BARRIER + "uint k = at[t]; //!\nout[g * 64 + k % 64] = 1; //!\n",
        "threadgroup uint at[64];\nat[t] = t;\n" + BARRIER + "uint k = at[t];\nout[g * 64 + k % 64] = 1;\n",
        "decides an address",
    ),
    "exchanged in a simdgroup": Case(
        "init",
        "float x; //!\nif (t % 32 > 0) x = in[i];\nfloat y = simd_shuffle_xor(x, 1);\nout[i] = y; //!\n",
        "float x = 0;\nif (t % 32 > 0) x = in[i];\nfloat y = simd_shuffle_xor(x, 1);\nout[i] = y;\n",
        "is stored to a buffer",
    ),
    "a sum from nothing": Case(
        "init",
        "threadgroup float sum;\nif (t == 0) {\nfor (int k = 0; k < 4; ++k) {\nsum += in[k]; //!\n}\nout[i] = sum; //!\n}\n",
        "threadgroup float sum;\nif (t == 0) {\nsum = 0;\nfor (int k = 0; k < 4; ++k) {\nsum += in[k];\n}\nout[i] = sum;\n}\n",
        "of threadgroup memory 'sum'",
    ),
    "a tile's edge": Case(
        "init",
        TILE + "if (t < 60) s[t] = in[i];\n" + BARRIER + "float x = 0;\nfor (int k = 0; k < 64; ++k) {\nx += s[k]; //!\n}\nout[i] = x; //!\n",
        TILE + "s[t] = t < 60 ? in[i] : 0.0f;\n" + BARRIER + "float x = 0;\nfor (int k = 0; k < 64; ++k) {\nx += s[k];\n}\nout[i] = x;\n",
        "(index 60) of threadgroup memory 's'",
    ),
    "a counter from nothing": Case(
        "init",
        "threadgroup atomic_uint n;\natomic_fetch_add_explicit(&n, 1, memory_order_relaxed); //!\n",
        "threadgroup atomic_uint n;\nif (t == 0) atomic_store_explicit(&n, 0, memory_order_relaxed);\n" + BARRIER
        + "atomic_fetch_add_explicit(&n, 1, memory_order_relaxed);\n",
        "of threadgroup memory 'n'",
    ),
    "past the end": Case(
        "bounds",
        "out[i + 1] = in[i]; //!\n",
        "if (i < 127) out[i + 1] = in[i];\n",
        "",
    ),
}  # fmt: skip


def source() -> str:
    """All kernels, in the order of CASES: `wrong0`, `right0`, `wrong1`, ..."""
    kernels = []
    for number, case in enumerate(CASES.values()):
        kernels.append(case.before)
        kernels.append(f"kernel void wrong{number}{ARGUMENTS} {{\n{case.wrong}}}\n")
        kernels.append(
            f"kernel void right{number}{ARGUMENTS} {{\n{case.right.replace('//!', '')}}}\n"
        )
    return "".join(kernels)
