"""Volume rendering with the names and arguments of nerfacc: samples of all rays in one row, ray after ray, or [rays,
samples]. Losses of such samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metal_ops.torch import ops


def pack_info(ray_indices: Tensor, n_rays: int | None = None) -> Tensor:
    """First sample and number of samples of each ray, [n_rays, 2], from the ray of each sample, ascending.

    Without n_rays, the last ray is that of the last sample.

    Example:
      >>> pack_info(torch.tensor([0, 0, 2]), 3).tolist()
      [[0, 2], [2, 0], [2, 1]]
    """
    if n_rays is None:
        n_rays = int(ray_indices[-1]) + 1 if len(ray_indices) else 0
    packed: Tensor = ops.pack_ray_indices(
        ray_indices, torch.tensor(n_rays, dtype=ray_indices.dtype)
    )
    return packed


def _packed(
    name: str,
    values: Tensor,
    packed_info: Tensor | None,
    ray_indices: Tensor | None,
    n_rays: int | None,
) -> Tensor:
    if packed_info is not None:
        return packed_info
    if ray_indices is not None:
        if n_rays is None:
            raise ValueError(f"{name}: n_rays must be given with ray_indices, got None.")
        return pack_info(ray_indices, n_rays)
    if values.dim() != 2:
        raise ValueError(
            f"{name}: packed_info or ray_indices must be given for samples of shape {list(values.shape)}."
        )
    return torch.zeros([0, 2], dtype=torch.int32)


def _scan(reduction: str, exclusive: bool, doc: str) -> Callable[..., Tensor]:
    name = f"{'exclusive' if exclusive else 'inclusive'}_{reduction}"

    def scan(
        inputs: Tensor, packed_info: Tensor | None = None, indices: Tensor | None = None
    ) -> Tensor:
        if indices is not None and packed_info is None:
            packed_info = pack_info(indices)
        packed = _packed(name, inputs, packed_info, None, None)
        return ops.packed_scan(inputs, packed, reduction=reduction, exclusive=exclusive)

    scan.__name__ = scan.__qualname__ = name
    scan.__doc__ = doc
    return scan


inclusive_sum = _scan("sum", False, "Sums along each ray up to each sample, with it.")
exclusive_sum = _scan("sum", True, "Sums along each ray up to each sample, without it.")
inclusive_prod = _scan("prod", False, "Products along each ray up to each sample, with it.")
exclusive_prod = _scan("prod", True, "Products along each ray up to each sample, without it.")


def render_weight_from_density(
    t_starts: Tensor,
    t_ends: Tensor,
    sigmas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(weights, transmittance, alphas) of samples, each shaped like sigmas.

    Example:
      >>> weights, _, _ = render_weight_from_density(*torch.tensor([[[0.0, 1.0]], [[1.0, 2.0]], [[1.0, 2.0]]]))
      >>> [round(weight, 3) for weight in weights[0].tolist()]
      [0.632, 0.318]
    """
    packed = _packed("render_weight_from_density", sigmas, packed_info, ray_indices, n_rays)
    moves = t_starts.requires_grad or t_ends.requires_grad
    weights, transmittance = ops.render_weights(sigmas, t_starts, t_ends, packed, t_gradients=moves)
    return weights, transmittance, 1 - torch.exp(-sigmas * (t_ends - t_starts))


def accumulate_along_rays(
    weights: Tensor,
    values: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
) -> Tensor:
    """Sums of weights, or of weights times values [..., channels], of each ray: [n_rays, channels or 1].

    Example:
      >>> accumulate_along_rays(torch.tensor([1.0, 2.0, 3.0]), None, torch.tensor([0, 0, 1]), 2).tolist()
      [[3.0], [3.0]]
    """
    terms = weights[..., None] if values is None else weights[..., None] * values
    if ray_indices is None:
        return terms.sum(-2)
    if n_rays is None:
        raise ValueError("accumulate_along_rays: n_rays must be given with ray_indices, got None.")
    return terms.new_zeros(n_rays, terms.shape[-1]).index_add(0, ray_indices, terms)


def volume_render(
    t_starts: Tensor,
    t_ends: Tensor,
    sigmas: Tensor,
    rgbs: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    render_bkgd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(colors [rays, channels], opacities [rays, 1], depths [rays, 1], weights) in one op.

    Depths are sums of weights times the samples' middles. render_bkgd: [channels] or [rays, channels].

    Example:
      >>> t = torch.tensor([[0.0, 1.0]])
      >>> colors, opacities, depths, _ = volume_render(t, t + 1, torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, 3))
      >>> round(opacities.item(), 3)
      0.95
    """
    packed = _packed("volume_render", sigmas, packed_info, ray_indices, n_rays)
    background = sigmas.new_zeros(0) if render_bkgd is None else render_bkgd
    moves = t_starts.requires_grad or t_ends.requires_grad
    colors, opacities, depths, _, weights = ops.volume_render(
        sigmas, rgbs, t_starts, t_ends, packed, background.float(), t_gradients=moves
    )
    return colors, opacities[:, None], depths[:, None], weights


def distortion(
    weights: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    packed_info: Tensor | None = None,
) -> Tensor:
    """The distortion of each ray's weights (Barron et al. 2022, mip-NeRF 360, equation 15), [rays].

    Example:
      >>> distortion(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 2.0]])).tolist()
      [0.6666666865348816]
    """
    packed = _packed("distortion", weights, packed_info, ray_indices, n_rays)
    moves = t_starts.requires_grad or t_ends.requires_grad
    loss: Tensor = ops.distortion_loss(weights, t_starts, t_ends, packed, t_gradients=moves)[0]
    return loss
