"""The parts of a model that a capture records: layers, heads, query positions, blocks. This module handles no tensors."""

import json
import re
from dataclasses import asdict, dataclass
from typing import Iterator, Mapping

from .errors import CaptureError

FORMAT = "kvcast-trace/1"
DTYPES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder, as a trace states it."""

    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    hidden: int
    rope_theta: float

    def __post_init__(self) -> None:
        if self.n_kv_heads < 1 or self.n_q_heads % self.n_kv_heads != 0:
            raise CaptureError(f"{self.n_q_heads} query heads are not a multiple of {self.n_kv_heads} KV heads")

    @property
    def group(self) -> int:
        return self.n_q_heads // self.n_kv_heads


@dataclass(frozen=True)
class Plan:
    """One capture: keys and values of every position for the chosen layers and heads, and the queries of the last `window`
    prompt positions and of all decode steps."""

    shape: Shape
    layers: tuple[int, ...]
    kv_heads: tuple[int, ...]
    prompt_tokens: int
    decode_steps: int
    window: int
    block: int
    dtype: str
    hidden: bool = False

    def __post_init__(self) -> None:
        _check_ids("layers", self.layers, self.shape.n_layers)
        _check_ids("kv-heads", self.kv_heads, self.shape.n_kv_heads)
        for name in ("prompt_tokens", "decode_steps", "block"):
            if getattr(self, name) < 1:
                raise CaptureError(f"{name.replace('_', ' ')}: must be at least 1, found {getattr(self, name)}")
        if not 0 <= self.window <= self.prompt_tokens:
            raise CaptureError(f"window: must be 0 to {self.prompt_tokens}, the tokens of the prompt, found {self.window}")
        if self.dtype not in DTYPES:
            raise CaptureError(f"dtype: found {self.dtype}; known: {', '.join(DTYPES)}")

    @property
    def positions(self) -> int:
        return self.prompt_tokens + self.decode_steps

    @property
    def q_heads(self) -> tuple[int, ...]:
        group = self.shape.group
        return tuple(head * group + member for head in self.kv_heads for member in range(group))

    @property
    def first_query(self) -> int:
        return self.prompt_tokens - self.window

    @property
    def n_queries(self) -> int:
        return self.window + self.decode_steps

    def blocks(self, done: int = 0) -> Iterator[tuple[int, int]]:
        """Yields the ranges [begin, end) of positions that are fed in one piece, from position `done` on."""
        while done < self.prompt_tokens:
            end = min(self.prompt_tokens, done + self.block)
            yield done, end
            done = end
        while done < self.positions:
            yield done, done + 1
            done += 1

    def captured_rows(self, begin: int, end: int) -> range:
        """Returns the rows of a block whose queries are captured."""
        return range(max(begin, self.first_query) - begin, max(begin, end) - begin)

    def fingerprint(self) -> dict:
        """Returns everything that must be unchanged for a capture to resume, as plain JSON."""
        return json.loads(json.dumps(asdict(self)))

    def metadata(self, optional: Mapping[str, str]) -> dict[str, str]:
        """Returns the trace's `__metadata__`. With a choice of heads, the trace describes a model that has only these heads."""
        text = {"format": FORMAT, "source": "captured", "layers": ",".join(map(str, self.layers)),
                "n_layers": str(self.shape.n_layers), "n_q_heads": str(len(self.q_heads)),
                "n_kv_heads": str(len(self.kv_heads)), "head_dim": str(self.shape.head_dim),
                "rope_theta": repr(float(self.shape.rope_theta)), "prompt_tokens": str(self.prompt_tokens),
                "decode_steps": str(self.decode_steps)}
        if len(self.kv_heads) < self.shape.n_kv_heads:
            text["kv_heads"] = ",".join(map(str, self.kv_heads))
        return {**optional, **text}


def _check_ids(what: str, ids: tuple[int, ...], count: int) -> None:
    if not ids or list(ids) != sorted(set(ids)) or ids[0] < 0 or ids[-1] >= count:
        raise CaptureError(f"{what}: must be ascending numbers from 0 to {count - 1}, found "
                           f"{','.join(map(str, ids)) or 'none'}")


def parse_ids(what: str, text: str, count: int) -> tuple[int, ...]:
    """Parses `all`, `every:N`, or numbers and ranges such as `0,13,20-23` and `20--1`; negative numbers count from the end."""
    if text == "all":
        return tuple(range(count))
    try:
        if text.startswith("every:"):
            return tuple(range(0, count, int(text.removeprefix("every:"))))
        ids: set[int] = set()
        for part in text.split(","):
            found = re.fullmatch(r"(-?\d+)(?:-(-?\d+))?", part.strip())
            if found is None:
                raise ValueError(part)
            begin, last = (int(end) + (count if int(end) < 0 else 0) for end in (found[1], found[2] or found[1]))
            if last < begin:
                raise ValueError(part)
            ids.update(range(begin, last + 1))
    except ValueError as error:
        raise CaptureError(f"{what}: found {text!r}; known: all, every:N, numbers and ascending ranges such as "
                           "0,13,20-23") from error
    chosen = tuple(sorted(ids))
    _check_ids(what, chosen, count)
    return chosen
