"""Inputs and outputs of a policy, for a batch of sequences of equal length.

Shapes: B sequences, Hq query heads, Hkv KV heads, GQA groups of G = Hq / Hkv query heads, head dimension d, S prompt tokens, n
tokens so far. Everything is computed in single precision. Ties go to the lower position, as in kvcast.
"""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import torch
from torch import Tensor

INFINITY = float("inf")


@dataclass(frozen=True)
class Shape:
    """The shape of the model, as policies need it."""

    n_layers: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    rope_theta: float

    @property
    def group(self) -> int:
        return self.n_q_heads // self.n_kv_heads


@dataclass(frozen=True)
class Lengths:
    """Lengths that determine parameters at the end of the prompt."""

    prompt: int
    steps: int

    @property
    def bound(self) -> int:
        return self.prompt + self.steps


@dataclass
class Prompt:
    """One layer after the prompt: queries [B, Hq, w, d] of its last w positions, keys and values [B, Hkv, S, d]."""

    layer: int
    queries: Tensor
    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        return self.keys.shape[2]

    def window(self, w: int) -> Tensor:
        if self.queries.shape[2] < w:
            raise ValueError(f"needs the queries of the last {w} prompt positions, but only {self.queries.shape[2]} are available")
        return self.queries[:, :, self.queries.shape[2] - w:]

    def weights(self, first: int, end: int) -> Tensor:
        """Returns causal softmax weights [B, Hq, end − first, S] of the prompt queries at positions first … end − 1."""
        behind = self.tokens - end
        queries = self.window(self.tokens - first)
        queries = queries[:, :, : queries.shape[2] - behind] if behind else queries
        rows = grouped(queries, self.keys).flatten(2, 3)  # one product per KV head
        scores = (rows @ self.keys.transpose(-1, -2) / self.keys.shape[-1] ** 0.5).view(*queries.shape[:3], self.tokens)
        positions = torch.arange(self.tokens, device=scores.device)
        return scores.masked_fill_(positions[None] > positions[first:end, None], -INFINITY).softmax(-1)


@dataclass
class Step:
    """One layer in decode step t: query [B, Hq, d], keys and values [B, Hkv, n, d]; the last of n = S + t + 1 tokens is current."""

    t: int
    query: Tensor
    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        return self.keys.shape[2]

    @property
    def scale(self) -> float:
        return self.keys.shape[-1] ** -0.5

    def scores(self) -> Tensor:
        """Returns raw q·k, [B, Hkv, G, n]."""
        return grouped(self.query, self.keys) @ self.keys.transpose(-1, -2)

    def everything(self, heads: int) -> Tensor:
        return torch.ones(self.keys.shape[0], heads, self.tokens, dtype=torch.bool, device=self.keys.device)

    def attend(self, mask: Tensor, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns outputs [B, Hq, d] and weights [B, Hq, n] of a softmax over the tokens of the mask [B, Hkv or Hq, n]."""
        scores = (self.scores() if scores is None else scores) * self.scale
        each = mask.reshape(*self.keys.shape[:2], -1, self.tokens)
        weights = scores.masked_fill(~each, -INFINITY).softmax(-1)
        return (weights @ self.values).flatten(1, 2), weights.flatten(1, 2)


@dataclass
class Selection:
    """Attended tokens, [B, Hkv or Hq, n]; outputs [B, Hq, d] if they are not simply a softmax over these tokens."""

    mask: Tensor
    output: Tensor | None = None


class Selector:
    """A policy's state for one layer of a batch while it is decoded."""

    def resident(self) -> Tensor:
        """Returns the tokens that are on the GPU after the prompt, as a mask [B, Hkv or Hq, S]."""
        raise NotImplementedError

    def step(self, step: Step) -> Selection:
        """Selects the tokens of a step; called for steps in order."""
        raise NotImplementedError


class Policy:
    """A policy with its parameters. DEFAULTS maps keys to values, as `kvcast policies NAME` prints them."""

    NAME = ""
    DEFAULTS: Mapping[str, Any] = {}

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        unknown = sorted(set(parameters) - set(self.DEFAULTS))
        if unknown:
            raise ValueError(f"{self.NAME}: unknown parameters {', '.join(unknown)}; known: {', '.join(self.DEFAULTS)}")
        self.shape, self.lengths = shape, lengths
        self.p = {**self.DEFAULTS, **parameters}

    def survey(self, prompts: Sequence[Prompt]) -> None:
        """Receives all layers before any selection, for policies that split a budget over layers."""

    def begin(self, prompt: Prompt) -> Selector:
        raise NotImplementedError


class Everything(Selector):
    """Reads all tokens, as every policy does with a budget that covers them."""

    def __init__(self, prompt: Prompt):
        self._like = prompt.keys

    def resident(self) -> Tensor:
        return torch.ones(self._like.shape[:3], dtype=torch.bool, device=self._like.device)

    def step(self, step: Step) -> Selection:
        return Selection(step.everything(step.keys.shape[1]))


class Kept(Selector):
    """Reads the kept prompt tokens and all generated tokens."""

    def __init__(self, mask: Tensor):
        self._mask = mask

    def resident(self) -> Tensor:
        return self._mask

    def step(self, step: Step) -> Selection:
        return Selection(with_generated(self._mask, step.tokens))


def with_generated(mask: Tensor, n: int) -> Tensor:
    """Extends the mask [.., S] over the prompt by all generated tokens, to [.., n]."""
    return torch.cat((mask, mask.new_ones(*mask.shape[:-1], n - mask.shape[-1])), -1)


def grouped(queries: Tensor, keys: Tensor) -> Tensor:
    """Reshapes [B, Hq, …] to [B, Hkv, G, …]."""
    return queries.view(queries.shape[0], keys.shape[1], -1, *queries.shape[2:])


def order(scores: Tensor) -> Tensor:
    """Returns indices along the last dimension, by descending score and then ascending index."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices


def best(scores: Tensor, k: int | Tensor) -> Tensor:
    """Returns the k best along the last dimension, as a mask; k: one number for all rows, or one per row."""
    n = scores.shape[-1]
    if isinstance(k, int) and k >= n:
        return torch.ones_like(scores, dtype=torch.bool)
    ranks = torch.empty_like(scores, dtype=torch.long)
    numbers = torch.arange(n, device=scores.device).expand_as(ranks)
    ranks.scatter_(-1, order(scores), numbers)
    return ranks < (k if isinstance(k, int) else k[..., None])


def reduce_group(rows: Tensor, how: str, scale: float, dim: int = 2) -> Tensor:
    """Reduces the query heads of a KV head (dimension `dim`) to one, by {sum, mean, max}_{scores, weights}; weights are
    softmax(scale · score) along the last dimension."""
    operation, _, of = how.partition("_")
    if of == "weights":
        rows = (rows * scale).softmax(-1)
    elif of != "scores":
        raise ValueError(f"unknown group reduction {how}")
    if operation == "max":
        return rows.amax(dim)
    return rows.sum(dim) / (rows.shape[dim] if operation == "mean" else 1)


def pages_of(mask: Tensor, page: int, first: int, n: int) -> Tensor:
    """Returns the tokens of the chosen pages [.., pages], whose first page starts at `first`, as a mask [.., n]."""
    tokens = mask.repeat_interleave(page, -1)[..., : max(0, n - first)]
    out = mask.new_zeros(*mask.shape[:-1], n)
    out[..., first: first + tokens.shape[-1]] = tokens
    return out
