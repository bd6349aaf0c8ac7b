"""Indexes over keys in host memory: ctkvr, retrieval_attention, shadowkv."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .base import INFINITY, Everything, Policy, Prompt, Selection, Selector, Step, best, grouped, pages_of
from .stream import Stream


class CtkvrSelector(Selector):
    """Centroids are queries [B, Hkv, G, C, d], each with its highest-scoring keys as a mask [B, Hkv, C, positions]."""

    def __init__(self, prompt: Prompt, p: dict[str, Any], centroids: int, bound: int):
        self._prompt, self._p, self._bound = prompt, p, bound
        self._looked = min(p["retrieved_centroids"], centroids)
        self._lists = int(p["recall_factor"] * p["budget"])
        queries = grouped(prompt.window(centroids), prompt.keys)
        self._queries = normalize(queries, dim=-1)
        # Keys are ranked by the logarithm of their weight among all prompt keys, because weights themselves may underflow.
        logits = queries @ prompt.keys[:, :, None].transpose(-1, -2) * prompt.keys.shape[-1] ** -0.5
        ranked = logits.log_softmax(-1).amax(2)
        host = self._host(prompt.tokens)
        ranked = ranked.masked_fill(~host, -INFINITY)
        listed = best(ranked, min(self._lists, int(host.sum()))) & host
        self._listed = torch.nn.functional.pad(listed, (0, bound - prompt.tokens))

    def _host(self, n: int) -> Tensor:
        """Returns the tokens outside sink and window, as a mask [n]."""
        positions = torch.arange(n, device=self._prompt.keys.device)
        return (positions >= self._p["sink"]) & (positions < n - self._p["recent"])

    def resident(self) -> Tensor:
        return (~self._host(self._prompt.tokens)).expand(*self._prompt.keys.shape[:2], -1)

    def step(self, step: Step) -> Selection:
        n, host = step.tokens, self._host(step.tokens)
        query = normalize(grouped(step.query, step.keys), dim=-1)[:, :, :, None]
        similarity = (query @ self._queries.transpose(-1, -2))[..., 0, :].amax(2)
        nearest = best(similarity, self._looked)
        recalled = (self._listed & nearest[..., None]).any(2)[..., :n] & host
        scores = (step.scores() * step.scale).masked_fill(~recalled[:, :, None], -INFINITY)
        weights = torch.nan_to_num(scores.softmax(-1)).amax(2).masked_fill(~recalled, -INFINITY)
        chosen = best(weights, self._p["budget"]) & recalled
        self._push(query, torch.nn.functional.pad(best(weights, self._lists) & recalled, (0, self._bound - n)))
        return Selection(chosen | ~host)

    def _push(self, query: Tensor, listed: Tensor) -> None:
        """Replaces the oldest centroid by the step's query."""
        self._queries = torch.cat((self._queries[:, :, :, 1:], query), 3)
        self._listed = torch.cat((self._listed[:, :, 1:], listed[:, :, None]), 2)


class Ctkvr(Policy):
    """CTkvr. centroids: None means adaptive, min(2048, prompt / 16)."""

    NAME = "ctkvr"
    DEFAULTS = {"budget": 1024, "centroids": None, "retrieved_centroids": 4, "recall_factor": 2.5, "sink": 128, "recent": 512}

    def begin(self, prompt: Prompt) -> Selector:
        bound = self.lengths.bound
        if self.p["budget"] >= bound or self.p["sink"] + self.p["recent"] >= bound:
            return Everything(prompt)
        given = self.p["centroids"]
        centroids = min(max(prompt.tokens // 16, 1), 2048) if given is None else min(given, prompt.tokens)
        return CtkvrSelector(prompt, self.p, centroids, bound)


class VectorSearchSelector(Selector):
    """Each query head finds the best tokens outside sink and window; the tokens that the index misses are drawn at random."""

    def __init__(self, prompt: Prompt, p: dict[str, Any]):
        self._prompt, self._p = prompt, p

    def _host(self, n: int) -> Tensor:
        positions = torch.arange(n, device=self._prompt.keys.device)
        return (positions >= self._p["sink"]) & (positions < n - self._p["recent"])

    def resident(self) -> Tensor:
        keys = self._prompt.keys
        return (~self._host(self._prompt.tokens)).expand(keys.shape[0], self._prompt.queries.shape[1], -1)

    def _found(self, step: Step, heads: int) -> Tensor:
        """Returns the tokens that the index can find, as a mask [heads, n]."""
        stream, n = Stream(self._p["seed"]), step.tokens
        rows = [[stream.child(self._prompt.layer, head, step.t).uniform(i) < self._p["recall"] for i in range(n)]
                for head in range(heads)]
        return torch.tensor(rows, device=step.keys.device)

    def step(self, step: Step) -> Selection:
        host, heads = self._host(step.tokens), step.query.shape[1]
        known = host.expand(heads, -1)
        if self._p["recall"] < 1:
            known = known & self._found(step, heads)
        scores = step.scores().flatten(1, 2).masked_fill(~known, -INFINITY)
        return Selection((best(scores, self._p["budget"]) & known) | ~host)


class RetrievalAttention(Policy):
    NAME = "retrieval_attention"
    DEFAULTS = {"budget": 1024, "recall": 1.0, "seed": 1, "sink": 128, "recent": 512}

    def begin(self, prompt: Prompt) -> Selector:
        bound = self.lengths.bound
        if self.p["budget"] >= bound or self.p["sink"] + self.p["recent"] >= bound:
            return Everything(prompt)
        return VectorSearchSelector(prompt, self.p)


def rotate(x: Tensor, theta: float, backwards: bool = False) -> Tensor:
    """Applies RoPE to rows at positions 0, 1, … along dimension −2; pairs are halves of the head dimension."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), (-angles if backwards else angles).sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class ShadowKvSelector(Selector):
    """Selects chunks by landmarks, which are their mean keys. The chunks whose landmark represents one of their keys worst stay
    on the GPU. The keys of selected chunks are rebuilt from a joint low-rank factor of the keys before RoPE."""

    def __init__(self, prompt: Prompt, p: dict[str, Any], theta: float):
        self._prompt, self._page = prompt, p["page"]
        self._chunks = max(0, (prompt.tokens - p["recent"]) // self._page)
        self._tokens = self._chunks * self._page
        chunks = prompt.keys[:, :, : self._tokens].view(*prompt.keys.shape[:2], self._chunks, self._page, -1)
        self._landmarks = chunks.mean(-2)
        cosines = (normalize(chunks, dim=-1) @ normalize(self._landmarks, dim=-1)[..., None])[..., 0].amin(-1)
        self._outliers = best(-cosines, min(p["outliers"], self._chunks))
        self._number = min(p["budget"] // self._page, self._chunks - int(self._outliers[0, 0].sum()))
        self._rebuilt = self._rebuild(prompt.keys[:, :, : self._tokens], p["rank"], theta)
        self._held = self._choose(prompt.window(1)[:, :, 0])

    @staticmethod
    def _rebuild(keys: Tensor, rank: int, theta: float) -> Tensor:
        batch, heads, n, d = keys.shape
        joint = rotate(keys, theta, backwards=True).transpose(1, 2).reshape(batch, n, heads * d).double()
        vectors = torch.linalg.eigh(joint.transpose(-1, -2) @ joint).eigenvectors[..., -min(rank, heads * d):]
        low = (joint @ vectors @ vectors.transpose(-1, -2)).to(keys.dtype)
        return rotate(low.view(batch, n, heads, d).transpose(1, 2), theta)

    def _choose(self, query: Tensor) -> Tensor:
        scores = grouped(query, self._landmarks) @ self._landmarks.transpose(-1, -2) * query.shape[-1] ** -0.5
        scores = scores.masked_fill(self._outliers[:, :, None], -INFINITY).softmax(-1).amax(2)
        return best(scores.masked_fill(self._outliers, -INFINITY), self._number) & ~self._outliers

    def _mask(self, n: int) -> Tensor:
        positions = torch.arange(n, device=self._held.device)
        return pages_of(self._outliers | self._held, self._page, 0, n) | (positions >= self._tokens)

    def resident(self) -> Tensor:
        return self._mask(self._prompt.tokens)

    def step(self, step: Step) -> Selection:
        self._held = self._choose(step.query)
        mask = self._mask(step.tokens)
        rebuilt = pages_of(self._held, self._page, 0, self._tokens)[..., None]
        keys = torch.cat((torch.where(rebuilt, self._rebuilt, step.keys[:, :, : self._tokens]),
                          step.keys[:, :, self._tokens:]), 2)
        output, _ = Step(step.t, step.query, keys, step.values).attend(mask)
        return Selection(mask, output)


class ShadowKv(Policy):
    NAME = "shadowkv"
    DEFAULTS = {"budget": 2048, "page": 8, "recent": 32, "outliers": 48, "rank": 160}

    def begin(self, prompt: Prompt) -> Selector:
        if self.p["budget"] >= self.lengths.bound or prompt.tokens - self.p["recent"] < self.p["page"]:
            return Everything(prompt)
        return ShadowKvSelector(prompt, self.p, self.shape.rope_theta)
