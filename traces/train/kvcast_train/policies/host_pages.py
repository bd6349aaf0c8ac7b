"""Policies that recall and evict pages: freekv, arkvale, raas."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from .base import INFINITY, Everything, Policy, Prompt, Selection, Selector, Step, best, grouped, pages_of, reduce_group
from .retrieval import page_bounds, score_pages


class FreeKvSelector(Selector):
    """Pages start after the sink. The window consists of the partial page and the last recent / page full ones, one fewer if
    the partial page is more than half full."""

    def __init__(self, prompt: Prompt, p: dict[str, Any]):
        self._prompt, self._p = prompt, p
        self._chosen: Tensor | None = None  # pages selected by the query of the last step
        self._query: Tensor | None = None

    def _selectable(self, n: int) -> int:
        paged = max(0, n - self._p["sink"])
        page = self._p["page"]
        window = max(0, self._p["recent"] // page - (1 if 2 * (paged % page) > page else 0))
        return max(0, paged // page - window)

    def _mask(self, n: int, pages: Tensor) -> Tensor:
        """Returns a mask of sink, pages [B, Hkv, selectable] and window."""
        positions = torch.arange(n, device=pages.device)
        first = self._p["sink"]
        near = (positions < first) | (positions >= first + self._selectable(n) * self._p["page"])
        return pages_of(pages, self._p["page"], first, n) | near

    def resident(self) -> Tensor:
        keys = self._prompt.keys
        held = torch.ones(keys.shape[:3], dtype=torch.bool, device=keys.device)
        if self._prompt.tokens <= self._p["budget"]:
            return held
        return self._mask(self._prompt.tokens, held[..., : self._selectable(self._prompt.tokens)] & False)

    def step(self, step: Step) -> Selection:
        if step.tokens <= self._p["budget"]:
            self._query = step.query
            return Selection(step.everything(step.keys.shape[1]))
        sink, page, n = self._p["sink"], self._p["page"], self._selectable(step.tokens)
        pages = step.keys[:, :, sink: sink + n * page]
        scores = score_pages(grouped(step.query, step.keys), *page_bounds(pages, page))
        number = (self._p["budget"] - sink - self._p["recent"]) // page
        chosen = best(reduce_group(scores, "mean_weights", 1.0), number)
        attended = chosen
        if self._chosen is not None:
            before = torch.nn.functional.pad(self._chosen, (0, n - self._chosen.shape[-1]))
            similarity = grouped(cosine_similarity(step.query.double(), self._query.double(), dim=-1), step.keys).mean(2)
            attended = torch.where((similarity < self._p["tau"])[..., None], chosen, before)
        self._chosen, self._query = chosen, step.query
        return Selection(self._mask(step.tokens, attended))


class FreeKv(Policy):
    NAME = "freekv"
    DEFAULTS = {"budget": 2048, "sink": 0, "recent": 0, "page": 32, "tau": 0.8}

    def begin(self, prompt: Prompt) -> Selector:
        p = self.p
        if p["budget"] < self.lengths.bound and p["budget"] - p["sink"] - p["recent"] < p["page"]:
            raise ValueError(f"freekv: a budget of {p['budget']} is smaller than sink, recent and one page of {p['page']}")
        return FreeKvSelector(prompt, p)


def cuboid_bounds(keys: Tensor, page: int) -> tuple[Tensor, Tensor]:
    """Returns centre ± mean distance of each full page's keys, [.., pages, d]."""
    pages = keys.view(*keys.shape[:-2], -1, page, keys.shape[-1])
    centre = (pages.amax(-2) + pages.amin(-2)) / 2
    distance = (centre[..., None, :] - pages).abs().mean(-2)
    return centre + distance, centre - distance


class ArkValeSelector(Selector):
    """One set of resident pages [B, 1, pages] for all heads of the layer. Missing pages are recalled before attention and
    replace the resident pages with the lowest scores."""

    def __init__(self, prompt: Prompt, budget: int, page: int, topk: int):
        self._prompt, self._budget, self._page = prompt, budget, page
        self._pages, self._topk = budget // page, topk
        self._held: Tensor | None = None
        n = self._count(prompt.tokens)
        if n > self._pages and budget < prompt.tokens:
            self._held = best(self._scores(prompt.window(1)[:, :, 0], prompt.keys, n - 1), self._pages - 1)

    def _count(self, n: int) -> int:
        return -(-n // self._page)

    def _scores(self, query: Tensor, keys: Tensor, pages: int) -> Tensor:
        bounds = cuboid_bounds(keys[:, :, : pages * self._page], self._page)
        return score_pages(grouped(query, keys), *bounds).mean(2).mean(1, keepdim=True)

    def _mask(self, n: int) -> Tensor:
        """Returns a mask of the resident pages and the current one."""
        held = torch.nn.functional.pad(self._held, (0, self._count(n) - self._held.shape[-1]))
        held[..., -1] = True
        return pages_of(held, self._page, 0, n).expand(-1, self._prompt.keys.shape[1], -1)

    def resident(self) -> Tensor:
        if self._held is None:
            return torch.ones(self._prompt.keys.shape[:3], dtype=torch.bool, device=self._prompt.keys.device)
        return self._mask(self._prompt.tokens)

    def step(self, step: Step) -> Selection:
        n = self._count(step.tokens)
        if n <= self._pages or self._budget >= step.tokens:
            return Selection(step.everything(step.keys.shape[1]))
        scores = self._scores(step.query, step.keys, n - 1)
        if self._held is None:  # all pages have been resident so far
            self._held = torch.ones_like(scores, dtype=torch.bool)
        # A page that has just been filled is resident until it becomes a victim.
        self._held = torch.nn.functional.pad(self._held, (0, n - 1 - self._held.shape[-1]), value=True)
        slots = self._pages - 1
        chosen = best(scores, min(self._topk, slots))
        ranked = scores.masked_fill(~self._held, -INFINITY).masked_fill(chosen, INFINITY)
        self._held = best(ranked, slots) & (self._held | chosen)
        return Selection(self._mask(step.tokens))


class ArkVale(Policy):
    """ArkVale without sink and window, as by default in kvcast: the current page is always resident."""

    NAME = "arkvale"
    DEFAULTS = {"budget": 4096, "page": 32, "topk": 32}

    def begin(self, prompt: Prompt) -> Selector:
        budget, page = self.p["budget"], self.p["page"]
        if budget < self.lengths.bound and budget < 2 * page:
            raise ValueError(f"arkvale: budget ({budget} tokens) is smaller than two pages of {page}")
        return ArkValeSelector(prompt, budget, page, self.p["topk"])


class RaasSelector(Selector):
    """Pages of arbitrary tokens [B, Hkv, pages, page], each with the length of the sequence when its weight last exceeded
    alpha."""

    def __init__(self, prompt: Prompt, p: dict[str, Any]):
        self._prompt, self._p, page, sink = prompt, p, p["page"], p["sink"]
        self._slots = p["budget"] // page
        full = max(0, (prompt.tokens - sink - p["recent"]) // page)
        middle = prompt.keys[:, :, sink: sink + full * page]
        if full > self._slots:
            query = grouped(prompt.window(1)[:, :, 0], prompt.keys).mean(2)
            kept = best((middle @ query[..., None])[..., 0], self._slots * page)
            tokens = kept.nonzero()[:, 2].view(*kept.shape[:2], self._slots, page)
        else:
            tokens = torch.arange(full * page, device=middle.device).view(full, page).expand(*middle.shape[:2], -1, -1)
        self._tokens = tokens + sink
        self._used = torch.full(self._tokens.shape[:3], prompt.tokens, device=middle.device)
        self._next = sink + full * page  # the first token that belongs to no page yet

    def resident(self) -> Tensor:
        return self._mask(self._prompt.tokens)

    def _mask(self, n: int) -> Tensor:
        positions = torch.arange(n, device=self._tokens.device)
        near = (positions < self._p["sink"]) | (positions >= self._next)
        mask = torch.zeros(*self._tokens.shape[:2], n, dtype=torch.bool, device=self._tokens.device)
        return mask.scatter(2, self._tokens.flatten(2), True) | near

    def step(self, step: Step) -> Selection:
        if step.tokens - self._next >= self._p["recent"] + self._p["page"]:
            self._take_page(step.tokens)
        d = step.keys.shape[-1]
        keys = step.keys.gather(2, self._tokens.flatten(2)[..., None].expand(-1, -1, -1, d)).view(*self._tokens.shape, d)
        scores = score_pages(grouped(step.query, step.keys), keys.amax(-2), keys.amin(-2))
        weights = reduce_group(scores, "mean_weights", step.scale if self._p["page"] == 1 else 1.0)
        self._used = self._used.masked_fill(weights > self._p["alpha"], step.tokens)
        return Selection(self._mask(step.tokens))

    def _take_page(self, now: int) -> None:
        page = self._p["page"]
        new = torch.arange(self._next, self._next + page, device=self._tokens.device)
        new = new.expand(*self._tokens.shape[:2], 1, -1)
        self._next += page
        if self._tokens.shape[2] < self._slots:
            self._tokens = torch.cat((self._tokens, new), 2)
            self._used = torch.cat((self._used, torch.full_like(self._used[..., :1], now)), 2)
            return
        stalest = best(-self._used.double(), 1)
        self._tokens = torch.where(stalest[..., None], new, self._tokens)
        self._used = self._used.masked_fill(stalest, now)


class Raas(Policy):
    NAME = "raas"
    DEFAULTS = {"budget": 2048, "page": 32, "sink": 0, "recent": 0, "alpha": 1e-4}

    def begin(self, prompt: Prompt) -> Selector:
        budget, page = self.p["budget"], self.p["page"]
        if budget >= self.lengths.bound:
            return Everything(prompt)
        if budget < page:
            raise ValueError(f"raas: budget ({budget} tokens) is smaller than one page of {page}")
        return RaasSelector(prompt, self.p)
