"""Modules, and rendering with nerfacc's names, beside the same in PyTorch's own ops."""

from __future__ import annotations

import doctest
import importlib
import itertools
from typing import Any

import pytest
import torch
from torch import nn

import metal_ops.torch as mt
from tests.torch import cases

GRID = mt.HashGrid(
    n_dims=3, n_levels=4, log2_hashmap_size=9, base_resolution=4, per_level_scale=1.7
)


def encoded(points: torch.Tensor, table: torch.Tensor, grid: mt.HashGrid) -> torch.Tensor:
    """The encoding by gathers, in float64 but for the cells' coordinates."""
    features = []
    for level in range(grid.n_levels):
        begin, end = grid.offsets[level], grid.offsets[level + 1]
        growth = torch.exp2(torch.tensor(level * float(grid.log2_per_level_scale)))
        scale = growth * grid.base_resolution - 1
        at = points.float() * scale + 0.5
        cell = at.floor().long()
        rest = (at - cell).double()
        resolution = int(torch.ceil(scale)) + 1
        total: Any = 0
        for corner in itertools.product((0, 1), repeat=grid.n_dims):
            xyz = cell + torch.tensor(corner)
            weight = torch.where(torch.tensor(corner) == 1, rest, 1 - rest).prod(-1)
            if resolution**grid.n_dims <= end - begin:
                strides = torch.tensor([resolution**dim for dim in range(grid.n_dims)])
                row = (xyz * strides).sum(-1)
            else:
                x, y, z = xyz.unbind(-1)
                row = x ^ (y * 2654435761 & 0xFFFFFFFF) ^ (z * 805459861 & 0xFFFFFFFF)
            row = begin + row % (end - begin)
            total = total + weight[:, None] * table.double()[row]
        features.append(total)
    return torch.cat(features, -1)


def test_the_encoding_is_that_of_gathers() -> None:
    module = mt.HashEncoding(GRID)
    nn.init.normal_(module.table)
    points = cases.Values().unit(500, 3)
    expected = encoded(points, module.table, GRID)
    torch.testing.assert_close(module(points).double(), expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(500, GRID.output_dim)
    (ours,) = torch.autograd.grad((module(points) * weights).sum(), module.table)
    (theirs,) = torch.autograd.grad((expected * weights).sum(), module.table)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("use_bias", [False, True])
def test_the_network_is_that_of_layers(use_bias: bool) -> None:
    module = mt.FusedMLP(7, 3, n_neurons=16, use_bias=use_bias, output_activation="sigmoid")
    nn.init.normal_(module.weights, std=0.3)
    x = cases.Values().normal(50, 7)
    y, at = x, 0
    for layer, (rows, columns) in enumerate([(7, 16), (16, 16), (16, 3)]):
        matrix = module.weights[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns
        y = y @ matrix
        if use_bias:
            y = y + module.weights[at : at + columns]
            at += columns
        y = torch.sigmoid(y) if layer == 2 else torch.relu(y)
    assert at == len(module.weights)
    torch.testing.assert_close(module(x), y, rtol=1e-5, atol=1e-5)


def model() -> mt.NetworkWithInputEncoding:
    torch.manual_seed(0)
    return mt.NetworkWithInputEncoding(mt.HashEncoding(GRID), mt.FusedMLP(8, 3, n_neurons=16))


def test_state() -> None:
    first, second = model(), model()
    nn.init.normal_(second.encoding.table)
    state = first.state_dict()
    assert set(state) == {"encoding.table", "network.weights"}
    second.load_state_dict(state)
    points = cases.Values().unit(20, 3)
    assert torch.equal(first(points), second(points))


def test_it_learns_as_itself_when_compiled() -> None:
    points = cases.Values().unit(400, 3)
    targets = torch.sin(7 * points)
    found = []
    for backend in (None, "aot_eager"):
        torch.compiler.reset()
        module = model()
        optimizer = torch.optim.Adam(module.parameters(), 1e-2)
        forward = (
            module if backend is None else torch.compile(module, fullgraph=True, backend=backend)
        )
        losses = []
        for _ in range(60):
            optimizer.zero_grad()
            loss = (forward(points) - targets).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    assert found[0] == found[1] and found[0][-1] < 0.2 * found[0][0]


def test_compiled_by_inductor() -> None:
    """The default compiler, whose own kernels stand around the ops."""
    torch.compiler.reset()
    module = model()
    compiled = torch.compile(module, fullgraph=True)
    points = cases.Values().unit(30, 3)
    torch.testing.assert_close(compiled(points), module(points))


def test_export_with_a_batch_of_any_size() -> None:
    points = cases.Values().unit(30, 3)
    n = torch.export.Dim("n", min=2)
    module = model()
    exported = torch.export.export(module, (points,), dynamic_shapes=({0: n},))
    for size in (5, 100):
        other = cases.Values().unit(size, 3)
        assert torch.equal(exported.module()(other), module(other))


def test_encodings_of_directions_and_points() -> None:
    directions = nn.functional.normalize(cases.Values().normal(5, 4, 3), dim=-1)
    y, z, x = directions[..., 1], directions[..., 2], directions[..., 0]
    expected = torch.stack(
        [0.28209479 + 0 * x, -0.48860251 * y, 0.48860251 * z, -0.48860251 * x], -1
    )
    torch.testing.assert_close(mt.SphericalHarmonics(2)(directions), expected)
    points = cases.Values().unit(5, 2)
    found = mt.Frequency(2, n_frequencies=1)(points)
    expected = torch.cat([points, torch.sin(torch.pi * points), torch.cos(torch.pi * points)], -1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: mt.FusedMLP(7, 3, n_neurons=17), "fused_mlp: n_neurons must be 16, 32, 64 or 128, got 17"),
        (lambda: mt.FusedMLP(7, 3)(torch.zeros(5, 6)), r"FusedMLP: x must have shape \[..., 7\], got \[5, 6\]"),
        (lambda: mt.NetworkWithInputEncoding(mt.HashEncoding(GRID), mt.FusedMLP(7, 3)), "must have n_input_dims = 8"),
        (lambda: mt.HashEncoding({"otype": "HashGrid", "interpolation": "Nearest"}), "interpolation: expected"),
        (lambda: mt.inclusive_sum(torch.zeros(5)), "packed_info or ray_indices must be given"),
    ],
)  # fmt: skip
def test_errors(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


# ---- rendering ------------------------------------------------------------------------------------------------------

RAYS = torch.tensor([0, 0, 0, 2, 2])
STARTS = torch.tensor([0.0, 1.0, 2.0, 0.5, 1.5])
ENDS = STARTS + torch.tensor([1.0, 1.0, 0.5, 1.0, 0.25])
SIGMAS = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0])


def expected_weights() -> list[float]:
    weights = []
    for ray in range(3):
        through = 1.0
        for i in (RAYS == ray).nonzero().flatten().tolist():
            alpha = 1 - float(torch.exp(-SIGMAS[i] * (ENDS[i] - STARTS[i])))
            weights.append(through * alpha)
            through *= 1 - alpha
    return weights


def test_rendering_is_that_of_a_loop() -> None:
    weights, transmittance, alphas = mt.render_weight_from_density(
        STARTS, ENDS, SIGMAS, ray_indices=RAYS, n_rays=3
    )
    assert weights.tolist() == pytest.approx(expected_weights(), abs=1e-6)
    assert (transmittance * alphas).tolist() == pytest.approx(expected_weights(), abs=1e-6)
    rgbs = cases.Values().unit(5, 3)
    colors = mt.accumulate_along_rays(weights, rgbs, RAYS, 3)
    opacities = mt.accumulate_along_rays(weights, None, RAYS, 3)
    background = torch.tensor([0.2, 0.4, 0.6])
    found = mt.volume_render(
        STARTS, ENDS, SIGMAS, rgbs, ray_indices=RAYS, n_rays=3, render_bkgd=background
    )
    torch.testing.assert_close(found[0], colors + (1 - opacities) * background)
    torch.testing.assert_close(found[1], opacities)
    assert torch.equal(found[3], weights) and opacities[1] == 0


def test_scans_and_packing() -> None:
    assert mt.pack_info(RAYS, 3).tolist() == [[0, 3], [3, 0], [3, 2]]
    assert mt.pack_info(RAYS).tolist() == mt.pack_info(RAYS, 3).tolist()
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    packed = mt.pack_info(RAYS, 3)
    assert mt.inclusive_sum(values, packed).tolist() == [1, 3, 6, 4, 9]
    assert mt.exclusive_sum(values, indices=RAYS).tolist() == [0, 1, 3, 0, 4]
    assert mt.inclusive_prod(values, packed).tolist() == [1, 2, 6, 4, 20]
    assert mt.exclusive_prod(values.reshape(1, 5)).tolist() == [[1, 1, 2, 6, 24]]


def test_gradients_of_places_where_they_are_asked_for() -> None:
    starts = STARTS.clone().requires_grad_()
    weights, _, _ = mt.render_weight_from_density(starts, ENDS, SIGMAS, ray_indices=RAYS, n_rays=3)
    (gradient,) = torch.autograd.grad(weights.sum(), starts)
    assert gradient.abs().min() > 0
    loss = mt.distortion(weights.detach(), starts, ENDS, RAYS, 3)
    assert loss.shape == (3,) and torch.autograd.grad(loss.sum(), starts)[0].abs().sum() > 0


@pytest.mark.parametrize("name", ["modules", "rendering"])
def test_examples(name: str) -> None:
    module = importlib.import_module(f"metal_ops.torch.{name}")
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.attempted > 4 and result.failed == 0
