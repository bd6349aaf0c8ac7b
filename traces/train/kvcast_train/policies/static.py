"""Policies whose selection does not depend on the text: full, streaming_llm, duo_attention, razor_attention."""

import math
from typing import Any

import torch
from torch import Tensor

from .base import INFINITY, Everything, Lengths, Policy, Prompt, Selection, Selector, Shape, Step
from .profile import best_heads, kv_head_scores, read_profile


class Full(Policy):
    NAME = "full"

    def begin(self, prompt: Prompt) -> Selector:
        return Everything(prompt)


class SinkAndWindow(Selector):
    """The KV heads of the mask `full` [Hkv] read all tokens, the others the first `sink` and the last `recent` ones."""

    def __init__(self, prompt: Prompt, sink: int, recent: int, full: Tensor):
        self._keys, self._sink, self._recent, self._full = prompt.keys, sink, recent, full

    def _mask(self, n: int) -> Tensor:
        positions = torch.arange(n, device=self._keys.device)
        near = (positions < self._sink) | (positions >= n - self._recent)
        return (near[None] | self._full[:, None]).expand(self._keys.shape[0], -1, -1)

    def resident(self) -> Tensor:
        return self._mask(self._keys.shape[2])

    def step(self, step: Step) -> Selection:
        return Selection(self._mask(step.tokens))


class StreamingLlm(Policy):
    """StreamingLLM: keys keep their original positions; recent = budget − sink."""

    NAME = "streaming_llm"
    DEFAULTS = {"budget": 2048, "sink": 4}

    def begin(self, prompt: Prompt) -> Selector:
        none = torch.zeros(self.shape.n_kv_heads, dtype=torch.bool, device=prompt.keys.device)
        return SinkAndWindow(prompt, self.p["sink"], self.p["budget"] - self.p["sink"], none)


class DuoAttention(Policy):
    """DuoAttention with the largest number of full heads whose mean over heads is within the budget at the last step."""

    NAME = "duo_attention"
    DEFAULTS = {"budget": None, "sparsity": 0.5, "sink": 64, "recent": 256, "profile": None}

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        super().__init__(shape, lengths, **parameters)
        scores = kv_head_scores(read_profile(self.p["profile"], shape), "retrieval", shape, largest=False)
        heads = shape.n_layers * shape.n_kv_heads
        self._sink, self._recent = self.p["sink"], self.p["recent"]
        if self.p["budget"] is None:
            number = heads - int(self.p["sparsity"] * heads + 0.5)
        else:
            number = self._fit(self.p["budget"], heads)
        self._full = best_heads(scores, number)

    def _fit(self, budget: int, heads: int) -> int:
        streaming = min(self.lengths.bound, self._sink + self._recent)
        if budget >= self.lengths.bound:
            return heads
        if budget > streaming:
            return heads * (budget - streaming) // (self.lengths.bound - streaming)
        if budget <= 2 * self._sink:
            self._sink = budget // 5
        self._recent = budget - self._sink
        return 0

    def begin(self, prompt: Prompt) -> Selector:
        return SinkAndWindow(prompt, self._sink, self._recent, self._full[prompt.layer].to(prompt.keys.device))


class Compensating(SinkAndWindow):
    """Streaming heads keep the mean key and value of the dropped tokens, which enter the softmax once per dropped token."""

    def step(self, step: Step) -> Selection:
        mask = self._mask(step.tokens)
        gone = step.tokens - self._recent - self._sink
        if gone <= 0:
            return Selection(mask)
        left = slice(self._sink, step.tokens - self._recent)
        mean = [rows[:, :, left].double().mean(2, keepdim=True).float() for rows in (step.keys, step.values)]
        keys, values = (torch.cat((rows, one), 2) for rows, one in zip((step.keys, step.values), mean))
        scores = Step(step.t, step.query, keys, values).scores()
        scores[..., -1] += math.log(gone) / step.scale
        both = torch.cat((mask, ~self._full[None, :, None].expand(mask.shape[0], -1, 1)), 2)
        return Selection(mask, Step(step.t, step.query, keys, values).attend(both, scores)[0])


class RazorAttention(Policy):
    """Full heads are chosen by echo and induction scores; the others keep a sink and a buffer whose size depends on the prompt
    length."""

    NAME = "razor_attention"
    DEFAULTS = {"echo_share": 0.01, "induction_share": 0.14, "sink": 4, "least_buffer": 4000, "divisor": 5.0, "profile": None}

    def __init__(self, shape: Shape, lengths: Lengths, **parameters: Any):
        super().__init__(shape, lengths, **parameters)
        profile = read_profile(self.p["profile"], shape)
        heads = shape.n_layers * shape.n_kv_heads
        masks = []
        for kind in ("echo", "induction"):
            number = math.ceil(self.p[f"{kind}_share"] * heads - 1e-9)
            masks.append(best_heads(kv_head_scores(profile, kind, shape, largest=True), number))
        self._full = masks[0] | masks[1]
        self._recent = max(self.p["least_buffer"], int(lengths.prompt / self.p["divisor"]))

    def begin(self, prompt: Prompt) -> Selector:
        full = self._full[prompt.layer].to(prompt.keys.device)
        return Compensating(prompt, self.p["sink"], self._recent, full)
