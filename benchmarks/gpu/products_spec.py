"""Lines for `products`: the shaders of plain products with the sizes that the host gives them (gemm_groups.mm)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(4096, 4096), (4096, 14336), (14336, 4096)]
SIMDGROUPS, BUSY = 8, 8192


def blocks() -> dict[str, list[int]]:
    text = (ROOT / "kernels/gemm/gemm_blocks_params.h").read_text()
    return {
        name.lower(): [int(n) for n in numbers.split(",")]
        for name, numbers in re.findall(r"#define GEMM_(\w+_BLOCK|\w+_FLOATS) ([\d, ]+)", text)
    }


def few(rows: int, terms: int, columns: int, dtype: str, turned: int) -> str:
    kind, wide, splits = "columns", 4 * (4 if dtype == "float" else 8), 1
    if turned:
        while splits < SIMDGROUPS and columns // 4 * splits < BUSY:
            splits *= 2
        kind, wide = "lines", SIMDGROUPS // splits * 4
    sizes = f"{rows} {terms} {columns} 0 {turned} {rows} {wide} {splits}"
    return f"few gemm_few_{kind}_{dtype}_{rows} {dtype} {sizes}"


def main() -> None:
    known = blocks()
    text = (ROOT / "kernels/gemm/gemm_blocks_params.h").read_text()

    def by_blocks(
        name: str, rows: int, terms: int, columns: int, turned_b: int, turned_a: int = 0
    ) -> None:
        numbers = " ".join(map(str, known[name]))
        name, kind = name.split("_")
        for dtype in ("half", "bfloat") if kind == "block" else ("float",):
            print(
                f"blocks gemm_blocks_{name}_{dtype} {dtype} {rows} {terms} {columns} {turned_a} {turned_b} {numbers}"
            )

    def by_fours(name: str, rows: int, terms: int, columns: int, turned_b: int) -> None:
        numbers = re.search(rf"GEMM_{name.upper()}_WARPGROUPS ([\d, ]+)", text)
        sizes = " ".join(numbers[1].replace(",", "").split()[:3])
        for dtype in ("half", "bfloat"):
            print(
                f"warpgroups gemm_warpgroups_{name}_{dtype} {dtype} {rows} {terms} {columns} 0 {turned_b} {sizes}"
            )

    # Odd sizes first, of each shader.
    for name in known:
        for turned_a, turned_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            by_blocks(name, 131, 1003, 517, turned_b, turned_a)
            by_blocks(name, 136, 1000, 520, turned_b, turned_a)
    for terms, columns in SIZES:
        for turned in (0, 1):
            for dtype in ("half", "bfloat", "float"):
                for rows in (1, 2, 4, 8) if dtype == "float" else (1,):
                    print(few(rows, terms, columns, dtype, turned))
            for rows in (2, 4, 8, 16):
                by_blocks("thin_block", rows, terms, columns, turned)
            for rows in (32, 64):
                by_blocks("low_block", rows, terms, columns, turned)
                by_blocks("small_floats", rows, terms, columns, turned)
            large = columns == 14336
            for rows in (512, 2048):
                wide = "large_block" if large or rows > 512 else "middle_block"
                by_blocks(wide, rows, terms, columns, turned)
                by_blocks("large_floats", rows, terms, columns, turned)
                by_fours("wide" if large or rows > 512 else "even", rows, terms, columns, turned)
    for bits in (4, 8):
        for terms, columns in SIZES:
            for rows in (1, 2, 4, 8):
                splits = 2 if columns == 4096 else 1
                name = f"quantized_groups_half_half_{bits}_{rows}"
                print(
                    f"int{bits} {name} half {rows} {terms} {columns} 0 1 {rows} {32 // splits} {splits}"
                )


if __name__ == "__main__":
    main()
