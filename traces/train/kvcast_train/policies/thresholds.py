"""Policies that select by a threshold or a sample instead of a budget: squeezed_attention, infinigen, magicpig."""

import math
from typing import Any, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .base import INFINITY, Policy, Prompt, Selection, Selector, Step, best, grouped, with_generated
from .stream import Stream, distinct, normals

CHUNK = 512  # number of keys hashed at once


# ---- squeezed_attention


def cluster(keys: Tensor, count: int, iterations: int, streams: Sequence[Stream]) -> Tensor:
    """Clusters keys [B, Hkv, n, d] by direction with k-means; returns labels [B, Hkv, n]. streams: one per KV head, for the
    initial centres."""
    directions = normalize(keys, dim=-1)
    first = torch.tensor([distinct(keys.shape[2], count, stream) for stream in streams], device=keys.device)
    centres = directions.gather(2, first[None, :, :, None].expand(keys.shape[0], -1, -1, keys.shape[3]))
    labels = torch.full(keys.shape[:3], -1, device=keys.device)
    for _ in range(iterations):
        new = (directions @ centres.transpose(-1, -2)).argmax(-1)
        if torch.equal(new, labels):
            break
        labels = new
        sums = torch.zeros_like(centres).scatter_add_(2, labels[..., None].expand_as(directions), directions)
        centres = torch.where((sums * sums).sum(-1, keepdim=True) == 0, centres, normalize(sums, dim=-1))
    return labels


class Clusters:
    """The clusters of one layer: labels, centroids (means of the unnormalised keys) and sizes."""

    def __init__(self, prompt: Prompt, clustered: int, share: float, iterations: int, seed: int):
        keys = prompt.keys[:, :, :clustered]
        count = min(max(math.floor(share * clustered + 0.5), 1), clustered)
        layer = Stream(seed).child(prompt.layer)
        self.labels = cluster(keys, count, iterations, [layer.child(head) for head in range(keys.shape[1])])
        sums = torch.zeros(*keys.shape[:2], count, keys.shape[3], device=keys.device)
        sums.scatter_add_(2, self.labels[..., None].expand_as(keys), keys)
        self.sizes = torch.zeros(*keys.shape[:2], count, device=keys.device)
        self.sizes.scatter_add_(2, self.labels, torch.ones_like(self.labels, dtype=torch.float32))
        self.centroids = sums / self.sizes.clamp(min=1)[..., None]

    def key_scores(self, queries: Tensor) -> Tensor:
        """Returns scores [B, Hkv, n] for queries [B, Hkv, G, rows, d]: e^{q·c/√d} / Σ n·e^{q·c/√d}, mean over rows, largest over
        the group. Every key has the score of its cluster."""
        logits = queries @ self.centroids[:, :, None].transpose(-1, -2) * queries.shape[-1] ** -0.5
        logits = logits - (logits + self.sizes.log()[:, :, None, None]).logsumexp(-1, keepdim=True)
        return logits.exp().mean(3).amax(2).gather(2, self.labels)


class SqueezedSelector(Selector):
    def __init__(self, prompt: Prompt, clusters: Clusters, threshold: Tensor):
        self._prompt, self._clusters, self._threshold = prompt, clusters, threshold

    def resident(self) -> Tensor:
        return torch.ones(self._prompt.keys.shape[:3], dtype=torch.bool, device=self._prompt.keys.device)

    def step(self, step: Step) -> Selection:
        scores = self._clusters.key_scores(grouped(step.query[:, :, None], step.keys))
        return Selection(with_generated(scores > self._threshold[:, None, None], step.tokens))


class SqueezedAttention(Policy):
    NAME = "squeezed_attention"
    DEFAULTS = {"sparsity": 0.7, "centroid_share": 0.05, "window": 100, "iterations": 10, "seed": 1}

    def survey(self, prompts: Sequence[Prompt]) -> None:
        """Sets one threshold for all layers and heads of a sequence: a quantile of the scores of all keys for the last prompt
        queries."""
        window = self.p["window"]
        clustered = self.lengths.prompt - window
        if clustered < 1:
            raise ValueError(f"squeezed_attention: a prompt of {self.lengths.prompt} tokens has none before its last {window}")
        self._clusters = {prompt.layer: Clusters(prompt, clustered, self.p["centroid_share"], self.p["iterations"],
                                                 self.p["seed"]) for prompt in prompts}
        scores = torch.cat([self._clusters[prompt.layer].key_scores(grouped(prompt.window(window), prompt.keys)).flatten(1)
                            for prompt in prompts], 1)
        self._threshold = torch.quantile(scores.double(), self.p["sparsity"], dim=1).float()

    def begin(self, prompt: Prompt) -> Selector:
        return SqueezedSelector(prompt, self._clusters[prompt.layer], self._threshold)


# ---- infinigen


class InfiniGenSelector(Selector):
    """InfiniGen with an exact query prediction: only the selection by a few columns is evaluated, not the prediction."""

    def __init__(self, prompt: Prompt, p: dict[str, Any]):
        self._p, self._keys = p, prompt.keys
        queries = grouped(prompt.queries, prompt.keys).flatten(2, 3)
        d = prompt.keys.shape[-1]
        turn = torch.linalg.eigh((queries.transpose(-1, -2) @ queries).double()).eigenvectors.float()
        magnitude = (queries @ turn).abs().sum(2)
        self._columns = turn * best(magnitude, max(1, int(p["partial_ratio"] * d)))[:, :, None]

    def resident(self) -> Tensor:
        return torch.zeros(self._keys.shape[:3], dtype=torch.bool, device=self._keys.device)

    def step(self, step: Step) -> Selection:
        query = grouped(step.query, step.keys).mean(2, keepdim=True) @ self._columns
        pool = step.keys[:, :, :-1] @ self._columns
        scores = (query @ pool.transpose(-1, -2))[:, :, 0] * step.scale
        above = (scores > scores.amax(-1, keepdim=True) - self._p["alpha"]).sum(-1)
        wanted = torch.div(above.sum(1), above.shape[1], rounding_mode="floor")
        number = wanted.clamp(max=int(self._p["max_share"] * scores.shape[-1])).clamp(min=1)
        return Selection(with_generated(best(scores, number[:, None].expand(-1, scores.shape[1])), step.tokens))


class InfiniGen(Policy):
    NAME = "infinigen"
    DEFAULTS = {"alpha": 4.0, "partial_ratio": 0.2, "max_share": 0.2}

    def begin(self, prompt: Prompt) -> Selector:
        return InfiniGenSelector(prompt, self.p)


# ---- magicpig


class MagicPigSelector(Selector):
    """MagicPIG: codes are [.., keys, tables]; each query head samples separately."""

    def __init__(self, prompt: Prompt, p: dict[str, Any]):
        self._prompt, self._p = prompt, p
        self._first, self._end = p["sink"], max(p["sink"], prompt.tokens - p["recent"])
        keys = prompt.keys[:, :, self._first: self._end]
        self._mean = keys.mean(2, keepdim=True) if keys.shape[2] else keys.new_zeros(*keys.shape[:2], 1, keys.shape[3])
        self._centred = keys - self._mean
        self._planes = normals(p["seed"], p["hash_bits"] * p["hash_tables"], keys.shape[3]).to(keys.device)
        self._codes = torch.cat([self._hash(part) for part in self._centred.split(CHUNK, 2)], 2)

    def _hash(self, rows: Tensor) -> Tensor:
        bits = (rows @ self._planes.T > 0).unflatten(-1, (self._p["hash_tables"], self._p["hash_bits"]))
        weights = 2 ** torch.arange(self._p["hash_bits"], device=rows.device)
        return (bits * weights).sum(-1).to(torch.int32)

    def _mask(self, sampled: Tensor, n: int) -> Tensor:
        mask = sampled.new_ones(*sampled.shape[:-1], n)
        mask[..., self._first: self._end] = sampled
        return mask

    def resident(self) -> Tensor:
        keys = self._centred
        heads = self._prompt.queries.shape[1]
        return self._mask(torch.zeros(keys.shape[0], heads, keys.shape[2], dtype=torch.bool, device=keys.device),
                          self._prompt.tokens)

    def step(self, step: Step) -> Selection:
        query = grouped(step.query, step.keys)
        codes = self._hash(query)
        hits = torch.stack([(self._codes == codes[:, :, g, None]).sum(-1) for g in range(codes.shape[2])], 2)
        mask = self._mask((hits >= 2).flatten(1, 2), step.tokens)
        logits = step.scores().double() * step.scale
        logits[..., self._first: self._end] -= (self._probability(query) + 1e-4).log()
        each = mask.view(logits.shape)
        output = logits.masked_fill(~each, -INFINITY).softmax(-1).float() @ step.values
        return Selection(mask, output.flatten(1, 2))

    def _probability(self, query: Tensor) -> Tensor:
        """Returns the probability that a key collides with the query in two or more tables, by their angle, [B, Hkv, G, keys]."""
        bits, tables = self._p["hash_bits"], self._p["hash_tables"]
        cosine = (normalize(query, dim=-1) @ normalize(self._centred, dim=-1).transpose(-1, -2)).double().clamp(-1, 1)
        p = (1 - cosine.acos() / math.pi) ** bits
        return 1 - (1 - p) ** tables - tables * p * (1 - p) ** (tables - 1)


class MagicPig(Policy):
    NAME = "magicpig"
    DEFAULTS = {"hash_bits": 10, "hash_tables": 150, "seed": 1, "sink": 4, "recent": 64}

    def begin(self, prompt: Prompt) -> Selector:
        return MagicPigSelector(prompt, self.p)
