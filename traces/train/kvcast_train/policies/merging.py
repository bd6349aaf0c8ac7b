"""d2o: eviction by total weight, as in h2o, with each evicted token merged into its most similar kept one."""

import math
from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .base import Everything, Policy, Prompt, Selection, Selector, Step, grouped, with_generated
from .eviction import choose_stay, column_sums
from .profile import layer_shares

CHUNK = 512  # number of evicted tokens compared with the kept ones at once


class D2oSelector(Selector):
    """One sequence (batch 1): layers of different sequences have different budgets."""

    def __init__(self, prompt: Prompt, totals: Tensor, budget: int, sink: int, alpha: float, beta: float):
        recent = int(budget * 0.5)
        budget = max(1, 2 * recent)  # heavy hitters and last tokens are half each, rounded down
        self._budget, self._recent, self._sink = budget, recent, min(sink, budget - recent)
        self._alpha, self._beta, self._tau = alpha, beta, None
        self._totals = totals
        self._held = torch.ones(prompt.keys.shape[:3], dtype=torch.bool, device=prompt.keys.device)
        self._keys: Tensor | None = None  # merged, by position
        self._values: Tensor | None = None

    def resident(self) -> Tensor:
        return self._held

    def step(self, step: Step) -> Selection:
        self._held = attended = with_generated(self._held, step.tokens)
        keys, values = step.keys, step.values
        if self._keys is not None:
            keys = torch.cat((self._keys, keys[:, :, self._keys.shape[2]:]), 2)
            values = torch.cat((self._values, values[:, :, self._values.shape[2]:]), 2)
        output, weights = Step(step.t, step.query, keys, values).attend(attended)
        missing = step.tokens - self._totals.shape[-1]
        self._totals = torch.nn.functional.pad(self._totals, (0, missing)) + weights.double()
        if int(attended[0, 0].sum()) > self._budget:
            scores = grouped(self._totals, keys).mean(2)
            self._held = choose_stay(attended, scores, self._budget, self._sink, self._recent)
            self._keys, self._values = self._merge(keys.clone(), values.clone(), attended & ~self._held)
        return Selection(attended, output)

    def _merge(self, keys: Tensor, values: Tensor, gone: Tensor) -> tuple[Tensor, Tensor]:
        """Merges evicted tokens into kept ones. A slot consists of the i-th evicted token of every head; the tokens of a slot
        are all merged or all dropped."""
        left = gone.nonzero()[:, 2].view(gone.shape[1], -1)  # [heads, slots]
        stay = self._held.nonzero()[:, 2].view(gone.shape[1], -1)
        d = keys.shape[-1]

        def take(rows: Tensor, where: Tensor) -> Tensor:
            return rows[0].gather(1, where[..., None].expand(-1, -1, d))

        kept = normalize(take(keys, stay), dim=-1)
        similarity, nearest = [], []
        for part in normalize(take(keys, left), dim=-1).split(CHUNK, 1):
            most = (part @ kept.transpose(-1, -2)).max(-1)
            similarity.append(most.values)
            nearest.append(most.indices)
        cosine, to = torch.cat(similarity, 1), stay.gather(1, torch.cat(nearest, 1))
        mean = cosine.double().mean(0)
        self._tau = float(mean.mean()) if self._tau is None else self._alpha * self._tau + self._beta * float(mean.mean())
        weight = cosine * (mean >= self._tau)
        count = torch.ones(gone.shape[1:], device=keys.device).scatter_add(1, to, (mean >= self._tau).float().expand_as(cosine))
        for rows in (keys, values):
            rows[0].scatter_add_(1, to[..., None].expand(-1, -1, d), weight[..., None] * take(rows, left))
            rows[0] /= count[..., None]
        return keys, values


class PerSequence(Selector):
    """One selector per sequence."""

    def __init__(self, selectors: Sequence[Selector]):
        self._selectors = selectors

    def resident(self) -> Tensor:
        return torch.cat([selector.resident() for selector in self._selectors])

    def step(self, step: Step) -> Selection:
        parts = [selector.step(Step(step.t, step.query[i: i + 1], step.keys[i: i + 1], step.values[i: i + 1]))
                 for i, selector in enumerate(self._selectors)]
        n = step.tokens
        return Selection(torch.cat([part.mask[..., :n] for part in parts]), torch.cat([part.output for part in parts]))


class D2o(Policy):
    """D2O as released: unnormalised cosines, half of the budget recent, layer budgets by how evenly layers attend."""

    NAME = "d2o"
    DEFAULTS = {"budget": 2048, "sink": 4, "alpha": 0.5, "beta": 0.5}

    def survey(self, prompts: Sequence[Prompt]) -> None:
        if self.p["budget"] >= self.lengths.bound:
            return
        self._totals = {prompt.layer: column_sums(prompt) for prompt in prompts}
        spreads = {}
        for layer, totals in self._totals.items():
            variance = totals.var(-1, unbiased=False)
            least, most = variance.amin(1, keepdim=True), variance.amax(1, keepdim=True)
            scaled = torch.where(most > least, (variance - least) / (most - least), torch.zeros_like(variance))
            spreads[layer] = scaled.mean(1).tolist()
        layers, tokens = self.shape.n_layers, self.lengths.prompt + 1
        self._budgets: dict[int, list[int]] = {layer: [] for layer in self._totals}
        for sequence in range(len(next(iter(spreads.values())))):
            shares = layer_shares({layer: math.exp(-each[sequence]) for layer, each in spreads.items()}, layers)
            for layer, each in self._budgets.items():
                share = shares[layer] * layers * self.p["budget"]
                each.append(max(1, int(min(max(share, 0.01 * tokens), tokens))))

    def begin(self, prompt: Prompt) -> Selector:
        if self.p["budget"] >= self.lengths.bound:
            return Everything(prompt)
        parts: list[Selector] = []
        for i, budget in enumerate(self._budgets[prompt.layer]):
            one = slice(i, i + 1)
            alone = Prompt(prompt.layer, prompt.queries[one], prompt.keys[one], prompt.values[one])
            parts.append(D2oSelector(alone, self._totals[prompt.layer][one], budget, self.p["sink"], self.p["alpha"],
                                     self.p["beta"]))
        return PerSequence(parts)
