"""The oracle itself: its derivatives against differences of its values, its indices against numbers done by hand."""

import numpy as np
import pytest

from tests.oracles import hash_encode as oracle

pytestmark = [pytest.mark.ops, pytest.mark.any_simd]

STEP = 1e-6


def make(n_dims, interpolation):
    random = np.random.default_rng(5)
    grid = oracle.Grid(np.array([0, 64, 96, 160], np.int32), 0.7, 3, interpolation, "hash")
    n, n_features = 6, 2
    shapes = {
        "x": (n, n_dims),
        "table": (160, n_features),
        "g": (n, 3 * n_features),
        "v": (n, n_dims),
    }
    values = {name: random.normal(size=shape) for name, shape in shapes.items()}
    values["x"] = random.uniform(0.1, 0.9, shapes["x"]).astype(np.float32).astype(np.float64)
    return values, grid


def difference(function, x, direction):
    return (function(x + STEP * direction) - function(x - STEP * direction)) / (2 * STEP)


@pytest.mark.parametrize("interpolation", ["linear", "smoothstep"])
@pytest.mark.parametrize("n_dims", [2, 3, 4])
def test_derivatives_are_those_of_the_values(n_dims, interpolation):
    values, grid = make(n_dims, interpolation)
    x, table, g, v = values["x"], values["table"], values["g"], values["v"]
    random = np.random.default_rng(6)
    along_x, along_table = random.normal(size=x.shape), random.normal(size=table.shape)

    def inner(x, table):
        return np.sum(g * oracle.encode(x, table, grid, continuous=True)[0])

    def tangent(x, table):  # g.(J v), by differences of the encoding
        h = 1e-4
        forward, backward = (oracle.encode(x + s * h * v, table, grid, True)[0] for s in (1, -1))
        return np.sum(g * (forward - backward)) / (2 * h)

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    close(
        np.sum(oracle.grad(g, x, table, grid)[0] * along_table),
        difference(lambda t: inner(x, t), table, along_table),
    )
    close(
        np.sum(oracle.point_grad(g, x, table, grid)[0] * along_x),
        difference(lambda p: inner(p, table), x, along_x),
    )
    close(np.sum(g * oracle.jvp(v, x, table, grid)[0]), difference(lambda p: inner(p, table), x, v))
    close(
        np.sum(oracle.jvp_grad(v, g, x, table, grid)[0] * along_table),
        difference(lambda t: tangent(x, t), table, along_table),
    )

    def slope(p):  # g.(J v) from the first derivative, which the lines above have checked
        return np.sum(v * point_grad_continuous(g, p, table, grid))

    close(
        np.sum(oracle.jvp_point_grad(v, g, x, table, grid)[0] * along_x),
        difference(slope, x, along_x),
    )


def point_grad_continuous(g, x, table, grid):
    result = np.zeros_like(x)
    for corner in oracle.corners(x, grid, 1, continuous=True):
        part = g[:, corner.level * 2 : corner.level * 2 + 2] * table[corner.row]
        result += corner.first * part.sum(1, keepdims=True)
    return result


def test_rows_by_hand():
    cells = np.array([[1, 2, 3]], np.uint32)
    assert oracle.rows_of(cells, 4, 64, "hash") == [1 + 2 * 4 + 3 * 16]  # 4^3 points fit: dense
    assert oracle.rows_of(cells, 4, 64, "dense") == [57]
    by_hand = (1 ^ (2 * 2654435761 % 2**32) ^ (3 * 805459861 % 2**32)) % 32
    assert oracle.rows_of(cells, 4, 32, "hash") == [by_hand]
    assert oracle.rows_of(cells, 4, 32, "dense") == [(1 + 2 * 4 + 3 * 16) % 32]
    wrapped = np.array([[-1, 0]], np.int64).astype(np.uint32)
    assert oracle.rows_of(wrapped, 5, 32, "hash") == [(2**32 - 1) % 32]


def test_a_constant_table_encodes_to_its_value():
    _, grid = make(3, "smoothstep")
    points = np.random.default_rng(0).uniform(-2, 2, (50, 3))
    np.testing.assert_allclose(
        oracle.encode(points, np.full((160, 2), 3.0), grid)[0], 3.0, rtol=1e-12
    )
