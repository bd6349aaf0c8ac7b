"""The data captured so far, in a folder of append-only files, so that an interrupted capture can resume.

Each file contains one tensor of one layer as a sequence of blocks, a block being [heads, rows, width] of the positions that
were fed together. `state.json` records the length up to which all files are complete; anything beyond it is the rest of an
interrupted block and is truncated. Keys and values of all layers are kept, including layers that the trace leaves out: the
model's cache is rebuilt from them.
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
    """The spool of one plan, one sequence of tokens and one model; resuming with any other is refused.

    model: identifies the weights, which the plan does not."""

    def __init__(self, folder: Path, plan: Plan, tokens: list[int], model: str = ""):
        self._folder = folder
        self._plan = plan
        self._element = BYTES[DTYPES[plan.dtype]]
        self._files: dict[str, BinaryIO] = {}
        prompt = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
        self._state = {"plan": plan.fingerprint(), "prompt": prompt, "model": model, "blocks": [], "fed": [], "next": None}
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
        """The number of positions captured."""
        return sum(self._state["blocks"])

    @property
    def next_token(self) -> int | None:
        """The greedy token after the last position fed."""
        return self._state["next"]

    @property
    def fed(self) -> list[int]:
        """The tokens fed after the prompt."""
        return self._state["fed"]

    def kinds(self, layer: int) -> list[str]:
        chosen = layer in self._plan.layers
        return ["keys", "values"] + (["queries"] if chosen else []) + (
            ["hidden"] if chosen and self._plan.hidden else [])

    def append(self, layer: int, kind: str, data: bytes) -> None:
        self._files[f"{layer}.{kind}"].write(data)

    def commit(self, rows: int, fed: list[int], next_token: int) -> None:
        """Marks the block of `rows` positions as complete; `fed` are its tokens after the prompt."""
        self._state["blocks"].append(rows)
        self._state["fed"] += fed
        self._state["next"] = next_token
        for file in self._files.values():
            file.flush()
        temporary = self._state_path.with_suffix(".part")
        temporary.write_text(json.dumps(self._state))
        os.replace(temporary, self._state_path)

    def head(self, layer: int, kind: str, head: int) -> Iterator[bytes]:
        """Yields one head's rows in order of position, block by block."""
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

    # ---- files

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
            raise CaptureError(f"{path}: has {there} bytes, {self._state_path.name} states {size}; remove {self._folder}")
        file = open(path, "ab")
        file.truncate(size)
        self._files[f"{layer}.{kind}"] = file

    def _go_on(self) -> None:
        found = json.loads(self._state_path.read_text())
        before, now = ({**state["plan"], "model": state.get("model")} for state in (found, self._state))
        for key, want in now.items():
            if before.get(key) != want:
                raise CaptureError(f"{self._folder} was started with {key} = {before.get(key)}, now {want}: "
                                   "remove it or choose another folder (--work)")
        if found["prompt"] != self._state["prompt"]:
            raise CaptureError(f"{self._folder} was started with another prompt: remove it or choose another folder (--work)")
        self._state = found
