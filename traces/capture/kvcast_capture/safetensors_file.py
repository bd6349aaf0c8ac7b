"""Writes and reads safetensors files with only the standard library.

A file is an 8-byte little-endian header length, a JSON header, and the tensors' bytes without gaps. Tensors are written
from iterators of byte chunks, so that a trace larger than memory can be assembled.
"""

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Mapping, Sequence

from .errors import CaptureError

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8}


@dataclass(frozen=True)
class Tensor:
    """A tensor to write; its bytes are supplied in row-major order, in any number of chunks."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: Iterable[bytes]

    @property
    def size(self) -> int:
        return BYTES[self.dtype] * math.prod(self.shape)


def write(path: Path, metadata: Mapping[str, str], tensors: Sequence[Tensor]) -> None:
    """Writes under a temporary name and then renames into place, so that an existing file is always complete."""
    header: dict = {"__metadata__": dict(metadata)}
    offset = 0
    for tensor in tensors:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                               "data_offsets": [offset, offset + tensor.size]}
        offset += tensor.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            written = sum(out.write(chunk) for chunk in tensor.chunks)
            if written != tensor.size:
                raise CaptureError(f"{path}: {tensor.name} has {written} bytes, its shape {tensor.size}")
    os.replace(temporary, path)


def read_header(path: Path) -> tuple[dict, int]:
    """Returns the header and the offset at which the data begin."""
    with open(path, "rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise CaptureError(f"{path}: is not a safetensors file: {len(start)} bytes")
        (length,) = struct.unpack("<Q", start)
        if length > 100_000_000:
            raise CaptureError(f"{path}: is not a safetensors file: its header would have {length} bytes")
        try:
            return json.loads(file.read(length)), 8 + length
        except ValueError as error:
            raise CaptureError(f"{path}: its header is not JSON: {error}") from error


def read_bytes(path: Path, name: str) -> tuple[dict, bytes]:
    """Returns a tensor's header entry and its bytes."""
    header, data = read_header(path)
    if name not in header:
        known = ", ".join(sorted(key for key in header if key != "__metadata__"))
        raise CaptureError(f"{path}: has no tensor {name}; known: {known}")
    begin, end = header[name]["data_offsets"]
    with open(path, "rb") as file:
        file.seek(data + begin)
        return header[name], file.read(end - begin)
