"""Feeds a decoder a prompt in blocks, then its own tokens one by one, and spools what attention saw."""

import json
from pathlib import Path
from typing import Callable, Mapping, Protocol, Sequence

from .assemble import assemble
from .errors import CaptureError
from .plan import Plan, Shape
from .spool import Spool


class Block(Protocol):
    """What one layer's attention saw of a block of positions, after RoPE; bytes are row-major, of the plan's dtype."""

    def keys(self) -> bytes:
        """[n_kv_heads, rows, head_dim] of the new positions alone."""

    def values(self) -> bytes:
        """The same shape."""

    def queries(self, rows: range) -> bytes:
        """[n_q_heads, len(rows), head_dim]"""

    def hidden(self, rows: range) -> bytes:
        """[len(rows), hidden]: the attention block's input"""


class Decoder(Protocol):
    """A model with a KV cache, one sequence at a time."""

    shape: Shape

    def feed(self, tokens: Sequence[int], begin: int, record: Callable[[int, Block], None]) -> int:
        """Runs the tokens at positions `begin` and up behind what is cached, calls record(layer, block) once a layer, and
        returns the greedy next token."""

    def restore(self, layer: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Sets a layer's cache: one head's rows an item."""


def capture(decoder: Decoder, plan: Plan, prompt: Sequence[int], out: Path, work: Path, optional: Mapping[str, str],
            continuation: Sequence[int] | None = None,
            progress: Callable[[int, int], None] = lambda done, of: None) -> list[int]:
    """Captures one trace, going on where `work` left off; returns the tokens fed after the prompt.

    continuation: tokens to feed in the decode steps instead of the greedy ones (as many as there are steps)."""
    if len(prompt) != plan.prompt_tokens:
        raise CaptureError(f"the prompt has {len(prompt)} tokens, the plan {plan.prompt_tokens}")
    if continuation is not None and len(continuation) < plan.decode_steps:
        raise CaptureError(f"the continuation has {len(continuation)} tokens for {plan.decode_steps} decode steps")
    forced = list(continuation[:plan.decode_steps]) if continuation is not None else []
    with Spool(work, plan, list(prompt) + forced) as spool:
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
        raise CaptureError(f"attention of layers {missing} was not seen: they do not attend through the common interface")
    spool.commit(end - begin, tokens if step >= 0 else [], next_token)


def read_tokens(path: Path) -> list[int]:
    """A JSON list of token numbers."""
    try:
        tokens = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path}: {error}") from error
    if not isinstance(tokens, list) or not all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in tokens):
        raise CaptureError(f"{path}: is not a JSON list of token numbers")
    return tokens
