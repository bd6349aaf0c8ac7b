"""hsa, rocketkv and rocketkv_mt: eviction by window scores, then retrieval by a few head dimensions of page bounds."""

import math
from typing import Any

import torch
from torch import Tensor

from .base import Lengths, Policy, Prompt, Selection, Selector, Shape, Step, best, grouped, reduce_group
from .prompt_end import keep_best, pool
from .retrieval import page_bounds


class HsaSelector(Selector):
    """Retrieves from a list of tokens [B, Hkv, N] in position order and the generated tokens after them."""

    def __init__(self, prompt: Prompt, kept: Tensor, budget: int, length: int, ratio: float, frees: bool):
        self._prompt, self._kept, self._frees = prompt, kept, frees
        self._budget, self._length = budget, length
        self._positions = kept.nonzero()[:, 2].view(*kept.shape[:2], -1)  # the same number in every head
        self._page = min(math.floor(ratio), math.ceil(math.sqrt(ratio)))
        d = prompt.keys.shape[-1]
        self._dims = min(max(math.floor(d * self._page / ratio), 1), d)

    def resident(self) -> Tensor:
        return self._kept if self._frees else torch.ones_like(self._kept)

    def step(self, step: Step) -> Selection:
        kept = self._positions.shape[-1]
        new = torch.arange(self._prompt.tokens, step.tokens, device=self._kept.device)
        positions = torch.cat((self._positions, new.expand(*self._positions.shape[:2], -1)), -1)
        if self._budget >= self._length or self._budget >= step.tokens:
            chosen = torch.ones_like(positions, dtype=torch.bool)
        else:
            keys = step.keys.gather(2, positions[..., None].expand(-1, -1, -1, step.keys.shape[-1]))
            chosen = best(self._estimate(grouped(step.query, step.keys), keys), min(self._budget // 2, kept + len(new)))
        mask = torch.zeros(*positions.shape[:2], step.tokens, dtype=torch.bool, device=positions.device)
        return Selection(mask.scatter(2, positions, chosen))

    def _estimate(self, query: Tensor, keys: Tensor) -> Tensor:
        """Returns the score of each token, which is that of its page, [B, Hkv, tokens]."""
        upper, lower = page_bounds(keys, self._page)
        read = best(query.abs().sum(2), self._dims)[:, :, None]
        bounds = torch.where((query.sum(2) > 0)[:, :, None], upper, lower)
        share = (query.abs() * read).sum(-1, keepdim=True) / query.abs().sum(-1, keepdim=True)
        scores = (query * read) @ bounds.transpose(-1, -2) / (query.shape[-1] * share).sqrt()
        tokens = scores.repeat_interleave(self._page, -1)[..., : keys.shape[2]]
        return reduce_group(tokens, "mean_weights", 1.0)


class Hsa(Policy):
    NAME = "hsa"
    DEFAULTS = {"budget": 2048}

    def begin(self, prompt: Prompt) -> Selector:
        bound, budget = self.lengths.bound, self.p["budget"]
        everything = torch.ones(prompt.keys.shape[:3], dtype=torch.bool, device=prompt.keys.device)
        return HsaSelector(prompt, everything, budget, bound, max(1.0, bound / budget), True)


class RocketKv(Policy):
    """RocketKV. split_factor: None means adaptive; max_new_tokens: None means the number of decode steps."""

    NAME = "rocketkv"
    DEFAULTS = {"budget": 2048, "split_factor": None, "window": 32, "pool_kernel": 63, "max_new_tokens": None}
    FREES = True

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        super().__init__(shape, lengths, **parameters)
        bound, budget = lengths.bound, self.p["budget"]
        reserved = lengths.steps if self.p["max_new_tokens"] is None else self.p["max_new_tokens"]
        ratio = max(1.0, bound / budget)
        factor = self.p["split_factor"]
        factor = min(0.2 + 0.06 * math.log2(ratio), 0.8) if factor is None else factor
        self._length = max(int(bound / ratio ** factor), min(2 * reserved, bound))
        self._kept = self._length - reserved
        if budget >= bound:
            self._kept = max(self._kept, lengths.prompt)

    def begin(self, prompt: Prompt) -> Selector:
        budget, window = self.p["budget"], self.p["window"]
        if self._kept >= prompt.tokens:
            kept = torch.ones(prompt.keys.shape[:3], dtype=torch.bool, device=prompt.keys.device)
        else:
            if window > self._kept:
                raise ValueError(f"{self.NAME}: the window of {window} does not fit into the {self._kept} kept tokens")
            sums = prompt.weights(prompt.tokens - window, prompt.tokens)[..., : prompt.tokens - window].sum(2)
            scores = pool(grouped(sums, prompt.keys).sum(2), "max", self.p["pool_kernel"])
            kept = keep_best(scores, self._kept - window, window)
        return HsaSelector(prompt, kept, budget, self._length, max(1.0, self._length / budget), self.FREES)


class RocketKvMt(RocketKv):
    NAME = "rocketkv_mt"
    FREES = False
