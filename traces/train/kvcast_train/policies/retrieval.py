"""Retrieval from a cache that holds everything: exact_topk, quest, sparq, loki."""

import torch
from torch import Tensor

from .base import INFINITY, Everything, Policy, Prompt, Selection, Selector, Step, best, grouped, pages_of, reduce_group


class Retrieving(Selector):
    """All tokens are resident; subclasses select."""

    def __init__(self, prompt: Prompt):
        self.prompt = prompt

    def resident(self) -> Tensor:
        return torch.ones(self.prompt.keys.shape[:3], dtype=torch.bool, device=self.prompt.keys.device)


def page_bounds(keys: Tensor, page: int) -> tuple[Tensor, Tensor]:
    """Returns the largest and smallest elements of each page's keys, [.., pages, d]; the last page may be partial."""
    n, d = keys.shape[-2:]
    missing = -n % page
    upper = torch.nn.functional.pad(keys, (0, 0, 0, missing), value=-INFINITY)
    lower = torch.nn.functional.pad(keys, (0, 0, 0, missing), value=INFINITY)
    shape = (*keys.shape[:-2], (n + missing) // page, page, d)
    return upper.view(shape).amax(-2), lower.view(shape).amin(-2)


def score_pages(query: Tensor, upper: Tensor, lower: Tensor) -> Tensor:
    """Returns Σ_j max(q_j·min_j, q_j·max_j), [B, Hkv, G, pages]; query [B, Hkv, G, d], bounds [B, Hkv, pages, d]."""
    return query.clamp(min=0) @ upper.transpose(-1, -2) + query.clamp(max=0) @ lower.transpose(-1, -2)


class ExactTopKSelector(Retrieving):
    def __init__(self, prompt: Prompt, budget: int, group: str):
        super().__init__(prompt)
        self._budget, self._group = budget, group
        self._lists = prompt.queries.shape[1] if group == "per_head" else prompt.keys.shape[1]

    def resident(self) -> Tensor:
        return super().resident()[:, :1].expand(-1, self._lists, -1)

    def step(self, step: Step) -> Selection:
        if self._budget >= step.tokens:
            return Selection(step.everything(self._lists))
        scores = step.scores()
        if self._group == "per_head":
            return Selection(best(scores.flatten(1, 2), self._budget))
        return Selection(best(reduce_group(scores, self._group, step.scale), self._budget))


class ExactTopK(Policy):
    NAME = "exact_topk"
    DEFAULTS = {"budget": 2048, "group": "per_head"}

    def begin(self, prompt: Prompt) -> Selector:
        return ExactTopKSelector(prompt, self.p["budget"], self.p["group"])


class QuestSelector(Retrieving):
    def __init__(self, prompt: Prompt, budget: int, page: int, group: str):
        super().__init__(prompt)
        self._budget, self._page, self._group = budget, page, group

    def step(self, step: Step) -> Selection:
        if self._budget >= step.tokens:
            return Selection(step.everything(step.keys.shape[1]))
        scores = score_pages(grouped(step.query, step.keys), *page_bounds(step.keys, self._page))
        chosen = best(reduce_group(scores, self._group, step.scale), self._budget // self._page)
        return Selection(pages_of(chosen, self._page, 0, step.tokens))


class Quest(Policy):
    NAME = "quest"
    DEFAULTS = {"budget": 2048, "page": 16, "group": "sum_scores"}

    def begin(self, prompt: Prompt) -> Selector:
        budget, page = self.p["budget"], self.p["page"]
        if budget < page and budget < self.lengths.bound:
            raise ValueError(f"quest: budget ({budget} tokens) is smaller than one page of {page}")
        return QuestSelector(prompt, budget, page, self.p["group"])


class SparqSelector(Retrieving):
    def __init__(self, prompt: Prompt, budget: int, dims: int, recent: int):
        super().__init__(prompt)
        self._budget, self._dims, self._recent = budget, dims, recent

    def step(self, step: Step) -> Selection:
        if self._budget + 1 >= step.tokens:
            return Selection(step.everything(step.keys.shape[1]))
        query = grouped(step.query, step.keys)
        read = best(query.abs().sum(2), self._dims)[:, :, None]
        share = (query.abs() * read).sum(-1, keepdim=True) / query.abs().sum(-1, keepdim=True)
        logits = (query * read) @ step.keys.transpose(-1, -2) / (query.shape[-1] * share).sqrt()
        ranked = logits.sum(2)
        if self._recent > 0:
            ranked[..., -self._recent:] = INFINITY
        mask = best(ranked, self._budget + 1)
        mass = (logits.softmax(-1) * mask[:, :, None]).sum(-1).flatten(1, 2)[..., None]
        output, _ = step.attend(mask)
        mean = step.values.mean(2).repeat_interleave(query.shape[2], 1)
        return Selection(mask, mass * output + (1 - mass) * mean)


class Sparq(Policy):
    NAME = "sparq"
    DEFAULTS = {"budget": 2048, "dims": 32, "recent": 0}

    def begin(self, prompt: Prompt) -> Selector:
        return SparqSelector(prompt, self.p["budget"], min(self.p["dims"], self.shape.head_dim), self.p["recent"])


class LokiSelector(Retrieving):
    """Estimates by the principal components of the prompt's centred keys; one basis per sequence and KV head."""

    def __init__(self, prompt: Prompt, budget: int, dims: int, recent: int, group: str):
        super().__init__(prompt)
        self._budget, self._recent, self._group = budget, recent, group
        centred = (prompt.keys - prompt.keys.mean(2, keepdim=True)).double()
        vectors = torch.linalg.eigh(centred.transpose(-1, -2) @ centred).eigenvectors  # ascending
        self._basis = vectors[..., -dims:].to(prompt.keys.dtype)

    def step(self, step: Step) -> Selection:
        if self._budget >= step.tokens:
            return Selection(step.everything(step.keys.shape[1]))
        scores = (grouped(step.query, step.keys) @ self._basis) @ (step.keys @ self._basis).transpose(-1, -2)
        ranked = reduce_group(scores, self._group, step.scale)
        if self._recent > 0:
            ranked[..., -self._recent:] = INFINITY
        return Selection(best(ranked, self._budget))


class Loki(Policy):
    NAME = "loki"
    DEFAULTS = {"budget": 2048, "dims": 32, "recent": 0, "group": "sum_scores"}

    def begin(self, prompt: Prompt) -> Selector:
        dims = min(self.p["dims"], self.shape.head_dim)
        return LokiSelector(prompt, self.p["budget"], dims, self.p["recent"], self.p["group"])
