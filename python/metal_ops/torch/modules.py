"""Encodings and small networks as modules, with the names of tiny-cuda-nn's PyTorch bindings."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from metal_ops.grid import INITIAL_RANGE, HashGrid
from metal_ops.torch import ops


def _rows(name: str, x: torch.Tensor, columns: int | None) -> torch.Tensor:
    """[..., columns] as [N, columns]."""
    if x.dim() == 0 or (columns is not None and x.shape[-1] != columns):
        expected = "dims" if columns is None else columns
        raise ValueError(f"{name}: x must have shape [..., {expected}], got {list(x.shape)}.")
    return x.reshape(-1, x.shape[-1])


class HashEncoding(nn.Module):
    """Points [..., n_dims] in [0, 1], float32, to features [..., n_levels * n_features_per_level] of the table's dtype.

    Args:
      grid: A HashGrid, or tiny-cuda-nn's configuration of one: a dict, or JSON.
      n_dims: The points' dimensions, where grid is a configuration.
      dtype: The table's, float32, float16 or bfloat16.

    Raises:
      TypeError, ValueError: The configuration is none of a grid, or asks for a feature that is not provided.

    Example:
      >>> encoding = HashEncoding(HashGrid(n_dims=3, n_levels=4))
      >>> encoding(torch.rand(10, 3)).shape
      torch.Size([10, 8])
    """

    def __init__(
        self,
        grid: HashGrid | dict[str, Any] | str,
        n_dims: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.grid = grid if isinstance(grid, HashGrid) else HashGrid.from_tcnn(grid, n_dims)
        self.n_input_dims, self.n_output_dims = self.grid.n_dims, self.grid.output_dim
        table = torch.empty(self.grid.table_shape).uniform_(-INITIAL_RANGE, INITIAL_RANGE)
        self.table = nn.Parameter(table.to(dtype))
        offsets = torch.tensor(list(self.grid.offsets), dtype=torch.int32)
        # Both follow from the grid. Compilers of functions take numbers of NumPy's for tensors.
        self._attributes = self.grid.op_attributes
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = _rows("HashEncoding", x, self.n_input_dims)
        encoded = ops.hash_encode(rows, self.table, self.offsets, **self._attributes)
        return encoded.reshape(*x.shape[:-1], self.n_output_dims)

    def extra_repr(self) -> str:
        return repr(self.grid)


class SphericalHarmonics(nn.Module):
    """Directions [..., 3] of length 1, float32, to degree^2 functions of them. degree: 1 to 8.

    Example:
      >>> SphericalHarmonics(2)(torch.tensor([[0.0, 0.0, 1.0]])).shape
      torch.Size([1, 4])
    """

    n_input_dims = 3

    def __init__(self, degree: int = 4, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.degree, self.dtype, self.n_output_dims = degree, dtype, degree**2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = _rows("SphericalHarmonics", x, 3)
        encoded = ops.sh_encode(rows, T=self.dtype, degree=self.degree)
        return encoded.reshape(*x.shape[:-1], self.n_output_dims)


class Frequency(nn.Module):
    """Points [..., n_dims], float32, to (x, sin w_0 x, cos w_0 x, sin w_1 x, ...), w_k = 2^k pi.

    Without times_pi w_k is 2^k, and without include_input x is left out.

    Example:
      >>> Frequency(3, n_frequencies=4)(torch.rand(10, 3)).shape
      torch.Size([10, 27])
    """

    def __init__(
        self,
        n_dims: int,
        n_frequencies: int = 10,
        include_input: bool = True,
        times_pi: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.n_input_dims = n_dims
        self.n_output_dims = n_dims * (2 * n_frequencies + include_input)
        self.options = {
            "n_frequencies": n_frequencies,
            "include_input": include_input,
            "times_pi": times_pi,
            "T": dtype,
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoded = ops.frequency_encode(_rows("Frequency", x, self.n_input_dims), **self.options)
        return encoded.reshape(*x.shape[:-1], self.n_output_dims)


class FusedMLP(nn.Module):
    """A small fully connected network in one pass over a batch, [..., n_input_dims] to [..., n_output_dims].

    Args:
      n_input_dims: 1 to 128.
      n_output_dims: 1 to 128.
      n_neurons: Columns of hidden layers: 16, 32, 64 or 128.
      n_hidden_layers: 1 to 8.
      activation: The hidden layers', none, relu, exponential, sigmoid or squareplus.
      output_activation: The same of the outputs.
      use_bias: Whether layers have biases. tiny-cuda-nn's have none.
      dtype: float32, float16 or bfloat16; sums are float32.

    All layers are one parameter, `weights`: of each its matrix [inputs, outputs], then its biases.

    Example:
      >>> FusedMLP(32, 3)(torch.rand(10, 32)).shape
      torch.Size([10, 3])
    """

    def __init__(
        self,
        n_input_dims: int,
        n_output_dims: int,
        n_neurons: int = 64,
        n_hidden_layers: int = 2,
        activation: str = "relu",
        output_activation: str = "none",
        use_bias: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.n_input_dims, self.n_output_dims = n_input_dims, n_output_dims
        self.options = {
            "n_outputs": n_output_dims,
            "n_neurons": n_neurons,
            "n_hidden_layers": n_hidden_layers,
            "activation": activation,
            "output_activation": output_activation,
            "use_bias": use_bias,
        }
        sizes = [n_input_dims, *[n_neurons] * n_hidden_layers, n_output_dims]
        layers = []
        for rows, columns in zip(sizes, sizes[1:], strict=False):
            limit = math.sqrt(6 / (rows + columns))  # Glorot's
            layers.append(torch.empty(rows * columns).uniform_(-limit, limit))
            layers.append(torch.zeros(columns if use_bias else 0))
        self.weights = nn.Parameter(torch.cat(layers).to(dtype))
        # Now, and not in the first call: all that is wrong with the sizes.
        with torch.no_grad():
            self(torch.zeros(0, n_input_dims))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = _rows("FusedMLP", x, self.n_input_dims).to(self.weights.dtype)
        outputs = ops.fused_mlp(rows, self.weights, **self.options)
        return outputs.reshape(*x.shape[:-1], self.n_output_dims)


class NetworkWithInputEncoding(nn.Module):
    """An encoding, and a network of its features.

    Example:
      >>> encoding = HashEncoding(HashGrid(n_dims=3))
      >>> NetworkWithInputEncoding(encoding, FusedMLP(encoding.n_output_dims, 3))(torch.rand(10, 3)).shape
      torch.Size([10, 3])
    """

    def __init__(self, encoding: nn.Module, network: nn.Module) -> None:
        super().__init__()
        if encoding.n_output_dims != network.n_input_dims:
            raise ValueError(
                f"NetworkWithInputEncoding: network must have n_input_dims = {encoding.n_output_dims} as "
                f"encoding gives, got {network.n_input_dims}."
            )
        self.encoding, self.network = encoding, network
        self.n_input_dims, self.n_output_dims = encoding.n_input_dims, network.n_output_dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.network(self.encoding(x))
        return output
