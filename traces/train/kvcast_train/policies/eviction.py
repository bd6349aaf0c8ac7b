"""Eviction by score at every step: h2o, tova, keydiff, d2o. Evicted tokens never return; a step attends to the held tokens and
its own, then evicts down to the budget."""

import torch
from torch import Tensor

from .base import INFINITY, Everything, Policy, Prompt, Selection, Selector, Step, best, grouped, with_generated

ROWS = 256  # number of prompt queries whose weights are summed at once


def choose_stay(held: Tensor, scores: Tensor, budget: int, sink: int, recent: int) -> Tensor:
    """Selects `budget` of the held tokens [.., n]: the first `sink`, the last `recent`, and the best of the others."""
    positions = torch.arange(held.shape[-1], device=held.device)
    from_end = held.flip(-1).cumsum(-1).flip(-1)
    protected = held & ((positions < sink) | (from_end <= recent))
    ranked = scores.float().masked_fill(~held, -INFINITY).masked_fill(protected, INFINITY)
    return best(ranked, budget) & held


def column_sums(prompt: Prompt) -> Tensor:
    """Returns the total weight of each prompt token over all prompt queries, [B, Hq, S], in double precision."""
    sums = torch.zeros(prompt.keys.shape[0], prompt.queries.shape[1], prompt.tokens, dtype=torch.float64,
                       device=prompt.keys.device)
    for first in range(0, prompt.tokens, ROWS):
        sums += prompt.weights(first, min(prompt.tokens, first + ROWS)).double().sum(2)
    return sums


class Evicting(Selector):
    """Holds the tokens of a mask [B, Hkv, tokens]; subclasses rank them."""

    def __init__(self, prompt: Prompt, budget: int, sink: int, recent: int):
        self.prompt, self.budget, self.sink, self.recent = prompt, budget, sink, recent
        self.held = torch.ones(prompt.keys.shape[:3], dtype=torch.bool, device=prompt.keys.device)

    def resident(self) -> Tensor:
        return self.held

    def over_budget(self) -> bool:
        return int(self.held[0, 0].sum()) > self.budget

    def evict(self, scores: Tensor) -> None:
        self.held = choose_stay(self.held, scores, self.budget, self.sink, self.recent)


class H2oSelector(Evicting):
    def __init__(self, prompt: Prompt, budget: int, sink: int, recent: int):
        super().__init__(prompt, budget, sink, recent)
        self._totals = column_sums(prompt)
        if self.over_budget():
            self.evict(self._scores())

    def _scores(self) -> Tensor:
        return grouped(self._totals, self.prompt.keys).mean(2)

    def step(self, step: Step) -> Selection:
        self.held = with_generated(self.held, step.tokens)
        attended = self.held
        output, weights = step.attend(attended)
        self._totals = torch.nn.functional.pad(self._totals, (0, 1)) + weights.double()
        if self.over_budget():
            self.evict(self._scores())
        return Selection(attended, output)


class H2o(Policy):
    NAME = "h2o"
    DEFAULTS = {"budget": 2048, "sink": 0, "recent": None}

    def begin(self, prompt: Prompt) -> Selector:
        budget = self.p["budget"]
        if budget >= self.lengths.bound:
            return Everything(prompt)
        return H2oSelector(prompt, budget, self.p["sink"], budget // 2 if self.p["recent"] is None else self.p["recent"])


class TovaSelector(Evicting):
    """All heads of a layer hold the same tokens."""

    def __init__(self, prompt: Prompt, budget: int, sink: int, recent: int):
        super().__init__(prompt, budget, sink, recent)
        if self.over_budget():
            self._evict(prompt.weights(prompt.tokens - 1, prompt.tokens)[:, :, 0])

    def _evict(self, weights: Tensor) -> None:
        self.evict(weights.mean(1, keepdim=True).expand(-1, self.held.shape[1], -1))

    def step(self, step: Step) -> Selection:
        self.held = with_generated(self.held, step.tokens)
        attended = self.held
        output, weights = step.attend(attended)
        if self.over_budget():
            self._evict(weights)
        return Selection(attended, output)


class Tova(Policy):
    NAME = "tova"
    DEFAULTS = {"budget": 2048, "sink": 0, "recent": 0}

    def begin(self, prompt: Prompt) -> Selector:
        return TovaSelector(prompt, self.p["budget"], self.p["sink"], self.p["recent"])


class KeyDiffSelector(Evicting):
    """Ranks by dissimilarity to the mean of the normalised held keys."""

    def __init__(self, prompt: Prompt, budget: int, sink: int, recent: int):
        super().__init__(prompt, budget, sink, recent)
        if self.over_budget():
            self.evict(self._distinctness(prompt.keys))

    def _distinctness(self, keys: Tensor) -> Tensor:
        directions = torch.nn.functional.normalize(keys.double(), dim=-1)
        anchor = (directions * self.held[..., None]).sum(2) / self.held.sum(-1, keepdim=True)
        return -(directions @ torch.nn.functional.normalize(anchor, dim=-1)[..., None])[..., 0]

    def step(self, step: Step) -> Selection:
        self.held = with_generated(self.held, step.tokens)
        attended = self.held
        if self.over_budget():
            self.evict(self._distinctness(step.keys))
        return Selection(attended)


class KeyDiff(Policy):
    NAME = "keydiff"
    DEFAULTS = {"budget": 2048, "sink": 0, "recent": 0}

    def begin(self, prompt: Prompt) -> Selector:
        return KeyDiffSelector(prompt, self.p["budget"], self.p["sink"], self.p["recent"])
