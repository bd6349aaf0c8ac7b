"""Conversion between PyTorch tensors and the bytes of the spool."""

from typing import Sequence

import torch

from .errors import CaptureError
from .plan import Shape

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def to_bytes(tensor: torch.Tensor, dtype: str) -> bytes:
    """Returns row-major bytes. NumPy has no bfloat16, so two-byte types are passed to it as integers."""
    tensor = tensor.detach().to(DTYPES[dtype]).contiguous().cpu()
    return tensor.view(torch.int32 if dtype == "f32" else torch.int16).numpy().tobytes()


def from_bytes(data: bytes, dtype: str, width: int) -> torch.Tensor:
    """Returns a tensor [rows, width]."""
    return torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]).reshape(-1, width)


def cache_of(heads: Sequence[bytes], dtype: str, width: int, device: torch.device | str) -> torch.Tensor:
    """Returns [1, heads, rows, width]; each item of `heads` contains the rows of one head."""
    return torch.stack([from_bytes(rows, dtype, width) for rows in heads])[None].to(device)


class TensorBlock:
    """The inputs of one layer's attention for a block of one sequence; see drive.Block.

    query [n_q_heads, rows, head_dim]; key and value [n_kv_heads, any, head_dim], whose last rows are the new positions;
    hidden [rows, hidden] or None."""

    def __init__(self, shape: Shape, dtype: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                 hidden: torch.Tensor | None = None):
        rows = query.shape[1]
        for name, tensor, heads in (("queries", query, shape.n_q_heads), ("keys", key, shape.n_kv_heads),
                                    ("values", value, shape.n_kv_heads)):
            if tensor.shape[0] != heads or tensor.shape[2] != shape.head_dim or tensor.shape[1] < rows:
                raise CaptureError(f"{name} are {list(tensor.shape)}; a trace needs [{heads}, {rows}, {shape.head_dim}]")
        self._dtype, self._rows = dtype, rows
        self._query, self._key, self._value, self._hidden = query, key, value, hidden

    def keys(self) -> bytes:
        return to_bytes(self._key[:, -self._rows:], self._dtype)

    def values(self) -> bytes:
        return to_bytes(self._value[:, -self._rows:], self._dtype)

    def queries(self, rows: range) -> bytes:
        return to_bytes(self._query[:, rows.start:rows.stop], self._dtype)

    def hidden(self, rows: range) -> bytes:
        if self._hidden is None:
            raise CaptureError("hidden states were requested, but none were observed")
        return to_bytes(self._hidden[rows.start:rows.stop], self._dtype)
