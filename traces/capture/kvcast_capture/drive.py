"""Feeds a decoder a prompt in blocks, then its own tokens one by one, and spools the inputs of attention."""

import json
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, Sequence

from .assemble import assemble
from .errors import CaptureError
from .plan import Plan, Shape
from .spool import Spool


class Block(Protocol):
    """Inputs of one layer's attention for a block of positions, after RoPE; bytes are row-major, in the plan's dtype."""

    def keys(self) -> bytes:
        """Returns [n_kv_heads, rows, head_dim], of the new positions only."""

    def values(self) -> bytes:
        """Returns values of the same shape."""

    def queries(self, rows: range) -> bytes:
        """Returns [n_q_heads, len(rows), head_dim]."""

    def hidden(self, rows: range) -> bytes:
        """Returns [len(rows), hidden], the attention block's input."""


class Decoder(Protocol):
    """A model with a KV cache, one sequence at a time."""

    shape: Shape

    def feed(self, tokens: Sequence[int], begin: int, record: Callable[[int, Block], None]) -> int:
        """Runs the tokens at positions `begin` and up on top of the cached ones, calls record(layer, block) once per layer,
        and returns the greedy next token."""

    def restore(self, layer: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Sets a layer's cache; each item contains the rows of one head."""


def capture(decoder: Decoder, plan: Plan, prompt: Sequence[int], out: Path, work: Path, optional: Mapping[str, str],
            continuation: Sequence[int] | None = None,
            progress: Callable[[int, int], None] = lambda done, of: None, model: str = "") -> list[int]:
    """Captures one trace, resuming from `work` if it exists; returns the tokens fed after the prompt.

    continuation: tokens to feed in the decode steps instead of the greedy ones, one per step. model: identifies the weights; a
    capture by others is not resumed."""
    if len(prompt) != plan.prompt_tokens:
        raise CaptureError(f"the prompt has {len(prompt)} tokens, the plan {plan.prompt_tokens}")
    if continuation is not None and len(continuation) < plan.decode_steps:
        raise CaptureError(f"the continuation has {len(continuation)} tokens for {plan.decode_steps} decode steps")
    forced = list(continuation[:plan.decode_steps]) if continuation is not None else []
    with Spool(work, plan, list(prompt) + forced, model) as spool:
        if 0 < spool.done < plan.positions:
            _restore(decoder, plan, spool)
        for begin, end in plan.blocks(spool.done):
            _feed_block(decoder, plan, spool, prompt, forced, begin, end)
            progress(end, plan.positions)
    assemble(out, plan, spool, optional)
    spool.remove()
    return spool.fed


def _restore(decoder: Decoder, plan: Plan, spool: Spool) -> None:
    for layer in range(plan.shape.n_layers):
        keys, values = ([b"".join(spool.head(layer, kind, head)) for head in range(plan.shape.n_kv_heads)]
                        for kind in ("keys", "values"))
        decoder.restore(layer, keys, values)


def _feed_block(decoder: Decoder, plan: Plan, spool: Spool, prompt: Sequence[int], forced: Sequence[int], begin: int,
                end: int) -> None:
    step = begin - plan.prompt_tokens
    if step < 0:
        tokens = list(prompt[begin:end])
    else:
        tokens = [forced[step] if forced else spool.next_token]
    rows = plan.captured_rows(begin, end)
    seen: set[int] = set()

    def record(layer: int, block: Block) -> None:
        seen.add(layer)
        spool.append(layer, "keys", block.keys())
        spool.append(layer, "values", block.values())
        if layer in plan.layers:
            spool.append(layer, "queries", block.queries(rows))
            if plan.hidden:
                spool.append(layer, "hidden", block.hidden(rows))

    next_token = decoder.feed(tokens, begin, record)
    missing = sorted(set(range(plan.shape.n_layers)) - seen)
    if missing:
        raise CaptureError(f"attention of layers {missing} was not observed: they do not use the common attention interface")
    spool.commit(end - begin, tokens if step >= 0 else [], next_token)


def read_text(path: Path) -> str:
    """Reads a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path}: {error}") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise CaptureError(f"{path}: {error}") from error


def _are_numbers(numbers: Any) -> bool:
    """Returns True for a list of integers of at least 0."""
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)


def read_tokens(path: Path) -> list[int]:
    """Reads a JSON list of token ids."""
    tokens = _read_json(path)
    if not _are_numbers(tokens):
        raise CaptureError(f"{path}: is not a JSON list of token ids")
    return tokens


def read_targets(path: Path, decode_steps: int) -> list[list[int]]:
    """Reads a JSON list of the positions that each decode step must be able to attend to."""
    targets = _read_json(path)
    if not isinstance(targets, list) or len(targets) != decode_steps or not all(_are_numbers(step) for step in targets):
        raise CaptureError(f"{path}: is not a JSON list of {decode_steps} lists of positions, one per decode step")
    return targets


def check_targets(targets: Sequence[Sequence[int]], prompt_tokens: int) -> None:
    """Refuses positions that a decode step cannot attend to."""
    for step, positions in enumerate(targets):
        if positions and max(positions) > prompt_tokens + step:
            raise CaptureError(f"targets: decode step {step} names {max(positions)}, which is not a position in "
                               f"0 .. {prompt_tokens + step}")
