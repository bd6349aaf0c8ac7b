"""One eviction, after the prompt: snapkv, pyramidkv, adakv, headkv, cake, compresskv, keyl2norm. Generated tokens are kept."""

import math
from typing import Any, Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, max_pool1d

from . import budgets
from .base import Kept, Lengths, Policy, Prompt, Selector, Shape, best, grouped, reduce_group
from .profile import head_scores, layer_shares, read_profile


def pool(scores: Tensor, kind: str, kernel: int) -> Tensor:
    """Pools along the last dimension with stride 1; averages count zeros beyond the ends, maxima ignore them."""
    rows = scores.reshape(-1, 1, scores.shape[-1])
    pooled = (max_pool1d if kind == "max" else avg_pool1d)(rows, kernel, stride=1, padding=kernel // 2)
    return pooled.reshape(scores.shape)


def keep_best(scores: Tensor, caps: int | Tensor, window: int) -> Tensor:
    """Returns masks over the prompt: the best `caps` of the scored tokens [B, H, S − window], and the window."""
    kept = best(scores, caps)
    return torch.cat((kept, kept.new_ones(*kept.shape[:-1], window)), -1)


class SnapKv(Policy):
    """SnapKV scores: weights of the last `window` queries, summed over queries, reduced over the group, and pooled."""

    NAME = "snapkv"
    DEFAULTS = {"budget": 2048, "window": 32, "pool": "max", "pool_kernel": 7, "group": "sum_weights"}

    def layer_budget(self, prompt: Prompt) -> int | Tensor:
        """Returns the number of tokens that a head of the layer keeps, including the window; [B] if sequences differ."""
        return self.p["budget"]

    def token_scores(self, prompt: Prompt) -> Tensor:
        """Returns scores [B, Hkv, S − window]."""
        window = self.p["window"]
        sums = prompt.weights(prompt.tokens - window, prompt.tokens)[..., : prompt.tokens - window].sum(2)
        return self._agree(sums, prompt)

    def _agree(self, scores: Tensor, prompt: Prompt) -> Tensor:
        how = self.p["group"].replace("weights", "scores")  # they already are weights
        return pool(reduce_group(grouped(scores, prompt.keys), how, 1.0), self.p["pool"], self.p["pool_kernel"])

    def whole_up_to(self, prompt: Prompt) -> int:
        """Returns the number of tokens up to which a prompt stays whole."""
        return self.p["budget"]

    def caps(self, scores: Tensor, budget: int | Tensor, layer: int) -> int | Tensor:
        """Returns the number of tokens kept before the window; [B, Hkv] if heads differ."""
        cap = budget - self.p["window"]
        return cap[:, None].expand(-1, scores.shape[1]) if isinstance(cap, Tensor) else cap

    def begin(self, prompt: Prompt) -> Selector:
        if self.p["window"] > self.p["budget"]:
            raise ValueError(f"{self.NAME}: a window of {self.p['window']} does not fit into a budget of {self.p['budget']}")
        if prompt.tokens <= self.whole_up_to(prompt):
            return Kept(torch.ones(prompt.keys.shape[:3], dtype=torch.bool, device=prompt.keys.device))
        scores = self.token_scores(prompt)
        caps = self.caps(scores, self.layer_budget(prompt), prompt.layer)
        return Kept(keep_best(scores, caps, self.p["window"]))


class PyramidKv(SnapKv):
    NAME = "pyramidkv"
    DEFAULTS = {**SnapKv.DEFAULTS, "group": "mean_weights", "beta": 20}

    def layer_budget(self, prompt: Prompt) -> int:
        window = self.p["window"]
        schedule = budgets.pyramid(self.p["budget"] - window, prompt.tokens - window, window, self.p["beta"],
                                   self.shape.n_layers)
        return schedule[prompt.layer] + window


class AdaKv(SnapKv):
    NAME = "adakv"
    DEFAULTS = {**SnapKv.DEFAULTS, "group": "mean_weights", "floor": 0.2, "normalise": True}

    def whole_up_to(self, prompt: Prompt) -> int:
        """Returns the number of tokens up to which a prompt stays whole."""
        return self.p["budget"]

    def caps(self, scores: Tensor, budget: int | Tensor, layer: int) -> Tensor:
        base, floor = int(budget) - self.p["window"], self.p["floor"]
        competing = scores.double()
        if self.p["normalise"]:
            top = (competing * best(scores, base)).sum(-1, keepdim=True)
            total = competing.sum(-1, keepdim=True)
            competing = competing * torch.where(total > 0, top / total, torch.zeros_like(total))
        won = best(competing.float().flatten(1), base * scores.shape[1]).view(scores.shape).sum(-1)
        shared = torch.round(won.double() * (1 - floor) + math.floor(base * floor)).long()
        return shared.clamp(max=scores.shape[-1])


class HeadKv(SnapKv):
    NAME = "headkv"
    DEFAULTS = {**SnapKv.DEFAULTS, "group": "mean_weights", "beta": 1.01, "power": 1.0, "profile": None}

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        super().__init__(shape, lengths, **parameters)
        profile = read_profile(self.p["profile"], shape)
        importance = [x ** self.p["power"] for layer in range(shape.n_layers)
                      for x in head_scores(profile, "retrieval", layer)]
        total = sum(importance)
        each = budgets.importance([x / total for x in importance], self.p["budget"] - self.p["window"], self.p["beta"])
        self._caps = [round(sum(each[i: i + shape.group]) / shape.group) for i in range(0, len(each), shape.group)]

    def whole_up_to(self, prompt: Prompt) -> int:
        """Returns the number of tokens up to which a prompt stays whole."""
        return self.p["budget"]

    def caps(self, scores: Tensor, budget: int | Tensor, layer: int) -> Tensor:
        heads = self.shape.n_kv_heads
        return torch.tensor(self._caps[layer * heads: (layer + 1) * heads], device=scores.device).expand(scores.shape[0], -1)


class Cake(SnapKv):
    """CAKE: scores are means and variances over the window's queries; layers share the budget by their attention patterns."""

    NAME = "cake"
    DEFAULTS = {**SnapKv.DEFAULTS, "group": "mean_weights", "pool": "avg", "pool_kernel": 5, "gamma": 200.0, "tau1": 1.0,
                "tau2": 1.0}

    def _columns(self, prompt: Prompt) -> tuple[Tensor, Tensor, Tensor]:
        """Returns mean and unbiased variance over the window's queries [B, Hq, S − window], and the weights themselves."""
        w = self.p["window"]
        weights = prompt.weights(prompt.tokens - w, prompt.tokens)[..., : prompt.tokens - w].double()
        variance = weights.var(2, unbiased=True) if w > 1 else torch.zeros_like(weights[:, :, 0])
        return weights.mean(2), variance, weights

    def survey(self, prompts: Sequence[Prompt]) -> None:
        self._budgets: dict[int, Tensor] = {}
        if prompts[0].tokens <= self.p["budget"]:
            return
        preferences = []
        for prompt in prompts:
            _, variance, weights = self._columns(prompt)
            entropy = -(weights * (weights + 1e-10).log()).sum((1, 2, 3))
            preferences.append(entropy.clamp(min=0) ** (1 / self.p["tau1"]) * variance.sum((1, 2)) ** (1 / self.p["tau2"]))
        captured = torch.stack(preferences, 1).tolist()
        layers, w = self.shape.n_layers, self.p["window"]
        base, available = self.p["budget"] - w, prompts[0].tokens - w
        each = [budgets.preference(layer_shares(dict(zip((p.layer for p in prompts), row)), layers), base * layers, available)
                for row in captured]
        table = torch.tensor(each, device=prompts[0].keys.device) + w
        self._budgets = {prompt.layer: table[:, prompt.layer] for prompt in prompts}

    def layer_budget(self, prompt: Prompt) -> Tensor:
        return self._budgets[prompt.layer]

    def token_scores(self, prompt: Prompt) -> Tensor:
        mean, variance, _ = self._columns(prompt)
        return self._agree((mean + self.p["gamma"] * variance).float(), prompt)


class CompressKv(SnapKv):
    """CompressKV: a few heads of a layer select for all; layers share the budget by their error under compression."""

    NAME = "compresskv"
    DEFAULTS = {"budget": 2048, "window": 8, "pool": "avg", "pool_kernel": 5, "retrieval_heads": 4, "least_layer_budget": 32,
                "most_layer_factor": 3, "profile": None}

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        super().__init__(shape, lengths, **parameters)
        self._profile = read_profile(self.p["profile"], shape)
        budget = self.p["budget"]
        self._layers = budgets.error_aware(layer_shares(self._profile["errors"], shape.n_layers), budget * shape.n_layers,
                                           min(self.p["least_layer_budget"], budget), self.p["most_layer_factor"] * budget)

    def layer_budget(self, prompt: Prompt) -> int:
        return self._layers[prompt.layer]

    def whole_up_to(self, prompt: Prompt) -> int:
        return self._layers[prompt.layer]

    def token_scores(self, prompt: Prompt) -> Tensor:
        scores = head_scores(self._profile, "semantic", prompt.layer)
        heads = sorted(range(len(scores)), key=lambda head: -scores[head])[: self.p["retrieval_heads"]]
        window = self.p["window"]
        sums = prompt.weights(prompt.tokens - window, prompt.tokens)[:, heads, :, : prompt.tokens - window].sum(2)
        mean = pool(sums, self.p["pool"], self.p["pool_kernel"]).mean(1, keepdim=True)
        return mean.expand(-1, self.shape.n_kv_heads, -1)


class KeyL2Norm(Policy):
    """Keeps the keys with the smallest norms."""

    NAME = "keyl2norm"
    DEFAULTS = {"budget": 2048}

    def begin(self, prompt: Prompt) -> Selector:
        return Kept(best(-(prompt.keys * prompt.keys).sum(-1), self.p["budget"]))
