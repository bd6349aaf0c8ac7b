"""What has been captured so far, in a folder of append-only files, so that an interrupted capture goes on.

Each file holds one tensor of one layer as a row of blocks, a block being [heads, rows, width] of the positions that were fed
together. `state.json` says how far all files are whole; what lies behind that was cut off in the middle and is truncated.
Keys and values of all layers are kept, also of those that the trace leaves out: the model's cache is rebuilt from them.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import BinaryIO, Iterator

from .errors import CaptureError
from .plan import DTYPES, Plan
from .safetensors_file import BYTES


class Spool:
    """Opened for one plan and one sequence of tokens; refuses to go on with another."""

    def __init__(self, folder: Path, plan: Plan, tokens: list[int]):
        self._folder = folder
        self._plan = plan
        self._element = BYTES[DTYPES[plan.dtype]]
        self._files: dict[str, BinaryIO] = {}
        prompt = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
        self._state = {"plan": plan.fingerprint(), "prompt": prompt, "blocks": [], "fed": [], "next": None}
        folder.mkdir(parents=True, exist_ok=True)
        if self._state_path.exists():
            self._go_on()
        try:
            for layer in range(plan.shape.n_layers):
                for kind in self.kinds(layer):
                    self._open(kind, layer)
        except CaptureError:
            self.__exit__()
            raise

    @property
    def _state_path(self) -> Path:
        return self._folder / "state.json"

    @property
    def done(self) -> int:
        """Positions that are captured."""
        return sum(self._state["blocks"])

    @property
    def next_token(self) -> int | None:
        """The greedy token after the last position fed."""
        return self._state["next"]

    @property
    def fed(self) -> list[int]:
        """Tokens fed after the prompt."""
        return self._state["fed"]

    def kinds(self, layer: int) -> list[str]:
        chosen = layer in self._plan.layers
        return ["keys", "values"] + (["queries"] if chosen else []) + (
            ["hidden"] if chosen and self._plan.hidden else [])

    def append(self, layer: int, kind: str, data: bytes) -> None:
        self._files[f"{layer}.{kind}"].write(data)

    def commit(self, rows: int, fed: list[int], next_token: int) -> None:
        """The block of `rows` positions is whole; `fed` are its tokens behind the prompt."""
        self._state["blocks"].append(rows)
        self._state["fed"] += fed
        self._state["next"] = next_token
        for file in self._files.values():
            file.flush()
        temporary = self._state_path.with_suffix(".part")
        temporary.write_text(json.dumps(self._state))
        os.replace(temporary, self._state_path)

    def head(self, layer: int, kind: str, head: int) -> Iterator[bytes]:
        """One head's rows in order of position, block by block."""
        with open(self._path(layer, kind), "rb") as file:
            base = 0
            for heads, rows, width in self._block_shapes(kind):
                file.seek((base + head * rows * width) * self._element)
                yield file.read(rows * width * self._element)
                base += heads * rows * width

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def remove(self) -> None:
        shutil.rmtree(self._folder)

    # ---- the files

    def _path(self, layer: int, kind: str) -> Path:
        return self._folder / f"layers.{layer}.{kind}.bin"

    def _block_shapes(self, kind: str) -> Iterator[tuple[int, int, int]]:
        shape = self._plan.shape
        begin = 0
        for block in self._state["blocks"]:
            captured = len(self._plan.captured_rows(begin, begin + block))
            begin += block
            if kind == "queries":
                yield shape.n_q_heads, captured, shape.head_dim
            elif kind == "hidden":
                yield 1, captured, shape.hidden
            else:
                yield shape.n_kv_heads, block, shape.head_dim

    def _open(self, kind: str, layer: int) -> None:
        path = self._path(layer, kind)
        size = self._element * sum(heads * rows * width for heads, rows, width in self._block_shapes(kind))
        there = path.stat().st_size if path.exists() else 0
        if there < size:
            raise CaptureError(f"{path}: has {there} bytes, {self._state_path.name} promises {size}; remove {self._folder}")
        file = open(path, "ab")
        file.truncate(size)
        self._files[f"{layer}.{kind}"] = file

    def _go_on(self) -> None:
        found = json.loads(self._state_path.read_text())
        for key, want in self._state["plan"].items():
            if found["plan"].get(key) != want:
                raise CaptureError(f"{self._folder} was begun with {key} = {found['plan'].get(key)}, now {want}: "
                                   "remove it or name another folder (--work)")
        if found["prompt"] != self._state["prompt"]:
            raise CaptureError(f"{self._folder} was begun with another prompt: remove it or name another folder (--work)")
        self._state = found
