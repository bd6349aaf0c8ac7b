"""Policies that evict tokens permanently, step by step."""

import numpy as np

from parts import Log, REDUCE, best, causal_weights, bound_scores, softmax
from traces import Trace


def protected_best(scores: np.ndarray, at: np.ndarray, length: int, budget: int, sink: int, recent: int) -> np.ndarray:
    """Selects the held tokens (positions `at`) that are kept: sink and recent, then the best."""
    certain = (at < sink) | (at >= length - recent)
    free = np.flatnonzero(~certain)
    chosen = free[best(scores[free], budget - certain.sum())]
    return np.sort(np.concatenate([np.flatnonzero(certain), chosen]))


def budget_after(p: dict, prompt: int, seen: int) -> int:
    """Tokens that are kept of those seen: the budget, or its share of the prompt if it grows."""
    if not p['budget_grows']:
        return p['budget']
    return max(1, p['sink'] + (p['recent'] if isinstance(p['recent'], int) else 0), int(p['budget'] / prompt * seen + 0.5))


def blocks_of(prompt: int, block) -> list:
    size = prompt if block == 'prompt' else int(block)
    return [(begin, min(begin + size, prompt)) for begin in range(0, prompt, size)]


def streaming_llm(t: Trace, p: dict) -> Log:
    log = Log()
    recent = p['budget'] - p['sink'] if p['recent'] == 'budget-sink' else p['recent']

    def held(length):
        return [i for i in range(length) if i < p['sink'] or i >= length - recent]

    for layer in sorted(t.keys):
        for step in range(-1, t.steps):
            length = t.prompt + step + 1
            for head in range(t.n_kv):
                log.add(layer, step, head, held(length))
    return log


def h2o(t: Trace, p: dict) -> Log:
    log = Log()
    budget = lambda seen: budget_after(p, t.prompt, seen)
    recent = lambda seen: min(budget(seen) // 2, budget(seen) - p['sink']) if p['recent'] == 'half' else p['recent']
    per_head = p['group'] == 'per_head'
    for layer in sorted(t.keys):
        lists = [(h, [h]) for h in range(t.n_q)] if per_head else \
            [(h, list(range(h * t.group, (h + 1) * t.group))) for h in range(t.n_kv)]
        how = 'sum' if per_head else p['group'].split('_')[0]
        for name, heads in lists:
            keys = t.keys[layer][heads[0] // t.group]
            rows = lambda a, b: t.queries[layer][heads][:, np.searchsorted(t.positions, range(a, b))]
            kind = 'q_head' if per_head else 'kv_head'
            at, total = np.array([], int), np.zeros((len(heads), 0))
            for begin, end in blocks_of(t.prompt, p['block']):
                at = np.concatenate([at, np.arange(begin, end)])
                weights = causal_weights(rows(begin, end), begin, keys[at], at).sum(axis=1)
                total = np.concatenate([total, np.zeros((len(heads), end - begin))], axis=1) + weights
                if len(at) > budget(end):
                    stay = protected_best(REDUCE[how](total), at, end, budget(end), p['sink'], recent(end))
                    at, total = at[stay], total[:, stay]
            log.add(layer, -1, name, at, kind=kind)
            for step in range(t.steps):
                now = t.prompt + step
                at, total = np.append(at, now), np.concatenate([total, np.zeros((len(heads), 1))], axis=1)
                attended = at
                total = total + causal_weights(rows(now, now + 1), now, keys[at], at)[:, 0]
                if p['decode_eviction'] and len(at) > budget(now + 1):
                    stay = protected_best(REDUCE[how](total), at, now + 1, budget(now + 1), p['sink'], recent(now + 1))
                    at, total = at[stay], total[:, stay]
                log.add(layer, step, name, attended, kind=kind, evicted=set(attended) - set(at))
    return log


def tova(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        scopes = [list(range(t.n_kv))] if p['scope'] == 'layer' else [[h] for h in range(t.n_kv)]
        for scope in scopes:
            def last_row(now, at):
                rows = [causal_weights(t.q(layer, h, now)[:, None], now, t.keys[layer][h][at], at)[:, 0] for h in scope]
                return np.concatenate(rows).mean(axis=0)

            def evict(at, length):
                budget = budget_after(p, t.prompt, length)
                if len(at) <= budget:
                    return at
                return at[protected_best(last_row(length - 1, at), at, length, budget, p['sink'], p['recent'])]

            at = np.array([], int)
            for begin, end in blocks_of(t.prompt, p['block']):
                at = evict(np.concatenate([at, np.arange(begin, end)]), end)
            for head in scope:
                log.add(layer, -1, head, at)
            for step in range(t.steps):
                attended = np.append(at, t.prompt + step)
                at = evict(attended, t.prompt + step + 1)
                for head in scope:
                    log.add(layer, step, head, attended, evicted=set(attended) - set(at))
    return log


def raas(t: Trace, p: dict) -> Log:
    log, page, sink, recent = Log(), p['page'], p['sink'], p['recent']
    room = p['budget'] // page
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys = t.keys[layer][head]
            n0 = max(0, (t.prompt - sink - recent) // page)
            first = sink + n0 * page  # start of the window
            middle = np.arange(sink, first)
            if n0 > room:
                scores = keys[middle] @ t.q(layer, head, t.prompt - 1).mean(axis=0)
                middle = middle[best(scores, room * page)]
            pages = [middle[i:i + page] for i in range(0, len(middle), page)]
            stamps = [t.prompt] * len(pages)
            held = lambda end: list(range(min(sink, end))) + [i for x in pages for i in x] + list(range(min(first, end), end))
            log.add(layer, -1, head, held(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                if length - first == recent + page and length > first:
                    new = np.arange(first, first + page)
                    first += page
                    if len(pages) < room:
                        pages.append(new)
                        stamps.append(length)
                    elif room:
                        victim = int(np.argmin(stamps))
                        pages[victim], stamps[victim] = new, length
                attended = held(length)
                if pages and length >= sink + recent + p['budget']:
                    low = np.array([keys[x].min(axis=0) for x in pages])
                    high = np.array([keys[x].max(axis=0) for x in pages])
                    q = t.q(layer, head, length - 1)
                    shares = softmax(np.stack([bound_scores(row, low, high) for row in q]))
                    if page == 1:
                        at = np.array(attended)
                        whole = causal_weights(q[:, None], length - 1, keys[at], at)[:, 0]
                        shares = whole[:, [attended.index(x[0]) for x in pages]]
                    used = REDUCE[p['group'].split('_')[0]](shares)
                    stamps = [length if share > p['alpha'] else stamp for share, stamp in zip(used, stamps)]
                log.add(layer, step, head, attended)
    return log


def anchor_scores(keys: np.ndarray, anchor: str, metric: str) -> np.ndarray:
    """Scores keys by their distance from the anchor: distinct keys score high."""
    unit = keys / np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), 1e-300)

    def similarity(middle):
        if metric == 'dot':
            return keys @ middle
        if metric == 'euclid':
            return -np.linalg.norm(keys - middle, axis=1)
        return unit @ middle / max(np.linalg.norm(middle), 1e-300)

    if anchor == 'pairwise':
        if metric == 'cosine':
            return -(unit @ unit.T).sum(axis=1)
        return -np.sum([similarity(other) for other in keys], axis=0)
    middle = {'mean': unit.mean(axis=0), 'mean_raw': keys.mean(axis=0), 'median': np.median(keys, axis=0)}[anchor]
    return -similarity(middle)


def keydiff(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys = t.keys[layer][head]
            budget = lambda seen: max(1, int(p['share'] * seen + 1e-9)) if p['share'] else budget_after(p, t.prompt, seen)
            recent = lambda seen: max(p['recent'], min(int(p['recent_fraction'] * budget(seen) + 1e-9), budget(seen) - p['sink']))

            def evict(at, length):
                if len(at) <= budget(length):
                    return at
                scores = anchor_scores(keys[at], p['anchor'], p['metric'])
                return at[protected_best(scores, at, length, budget(length), p['sink'], recent(length))]

            at = np.array([], int)
            for begin, end in blocks_of(t.prompt, p['block']):
                at = evict(np.concatenate([at, np.arange(begin, end)]), end)
            log.add(layer, -1, head, at)
            for step in range(t.steps):
                attended = at = np.append(at, t.prompt + step)
                if not p['share'] or (step + 1) % p['interval'] == 0:
                    at = evict(attended, t.prompt + step + 1)
                log.add(layer, step, head, attended, evicted=set(attended) - set(at))
    return log


def keyl2norm(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            norms = np.linalg.norm(t.keys[layer][head], axis=1)
            at = np.array([], int)
            for begin, end in blocks_of(t.prompt, p['block']):
                at = np.concatenate([at, np.arange(begin, end)])
                budget = budget_after(p, t.prompt, end)
                if len(at) > budget and end >= p['prune_after']:
                    at = at[protected_best(-norms[at], at, end, budget, p['sink'], p['recent'])]
            log.add(layer, -1, head, at)
            for step in range(t.steps):
                attended = at = np.append(at, t.prompt + step)
                budget = budget_after(p, t.prompt, t.prompt + step + 1)
                if p['decode_eviction'] and len(at) > budget:
                    at = at[protected_best(-norms[at], at, t.prompt + step + 1, budget, p['sink'], p['recent'])]
                log.add(layer, step, head, attended, evicted=set(attended) - set(at))
    return log


def d2o_budgets(t: Trace, p: dict, totals: dict) -> dict:
    """Returns the budget of each layer. All layers are in the trace. totals: layer -> [n_q, prompt] sums of prompt weights."""
    if p['layers'] == 'uniform':
        return {layer: p['budget'] for layer in t.keys}
    layers = sorted(t.keys)
    unevenness = []
    for layer in layers:
        spread = totals[layer].var(axis=1, ddof=1)
        gap = spread.max() - spread.min()
        unevenness.append(((spread - spread.min()) / gap).mean() if gap else 0.0)
    share = softmax(-np.array(unevenness))
    there = t.prompt + 1  # the first decode step evicts
    return {layer: np.clip(t.n_layers * p['budget'] * s, 0.01 * there, there) for layer, s in zip(layers, share)}


def d2o(t: Trace, p: dict) -> Log:
    log = Log()
    rows = {layer: np.concatenate([causal_weights(t.q_rows(layer, h, 0, t.prompt), 0, t.keys[layer][h][:t.prompt],
                                                  np.arange(t.prompt)).sum(axis=1) for h in range(t.n_kv)]) for layer in t.keys}
    budgets = d2o_budgets(t, p, rows)
    if p['budget'] >= t.prompt + t.steps:
        budgets = {layer: 2 * (t.prompt + t.steps) for layer in budgets}  # nothing is evicted
    block = p.get('block', 'prompt')
    for layer in sorted(t.keys):
        heads = [D2OHead(t, layer, h) for h in range(t.n_kv)]
        recent, threshold = int(budgets[layer] * p['recent_share']), None
        budget = max(1, recent + int(budgets[layer] * (1 - p['recent_share'])))

        def evict(length):
            nonlocal threshold
            evicted = [head.evict(length, budget, p['sink'], recent) for head in heads]
            if p['merge'] and len(evicted[0]):
                similarity = [head.similarity(gone) for head, gone in zip(heads, evicted)]
                means = np.mean([u for u, _ in similarity], axis=0)
                threshold = means.mean() if threshold is None else p['alpha'] * threshold + p['beta'] * means.mean()
                for head, gone, (u, j) in zip(heads, evicted, similarity):
                    head.merge(gone, u, j, means >= threshold)
            return evicted

        for begin, end in blocks_of(t.prompt, block):
            for head in heads:
                head.attend(begin, end)
            if block != 'prompt':
                evict(end)
        for name, head in enumerate(heads):
            log.add(layer, -1, name, head.at)
        for step in range(t.steps):
            length = t.prompt + step + 1
            attended = [head.attend(length - 1, length) for head in heads]
            for g in range(t.n_q):
                log.outputs[layer, step, g] = heads[g // t.group].outputs[g % t.group]
            for name, gone in enumerate(evict(length)):
                log.add(layer, step, name, attended[name], evicted=gone)
    return log


class D2OHead:
    def __init__(self, t: Trace, layer: int, head: int):
        self.t, self.layer, self.head = t, layer, head
        self.keys, self.values = t.keys[layer][head].copy(), t.values[layer][head].copy()
        self.at, self.total = np.array([], int), np.array([])

    def attend(self, begin: int, end: int) -> np.ndarray:
        self.at, self.total = np.append(self.at, np.arange(begin, end)), np.append(self.total, np.zeros(end - begin))
        queries = self.t.q_rows(self.layer, self.head, begin, end)
        weights = causal_weights(queries, begin, self.keys[self.at], self.at)
        self.outputs = weights[:, -1] @ self.values[self.at]
        self.total = self.total + weights.sum(axis=1).mean(axis=0)
        return self.at

    def evict(self, length: int, budget: int, sink: int, recent: int) -> np.ndarray:
        if len(self.at) <= budget:
            return np.array([], int)
        stay = protected_best(self.total, self.at, length, budget, sink, recent)
        gone = np.setdiff1d(self.at, self.at[stay])
        self.at, self.total = self.at[stay], self.total[stay]
        return gone

    def similarity(self, gone: np.ndarray) -> tuple:
        unit = lambda x: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
        cosine = unit(self.keys[gone]) @ unit(self.keys[self.at]).T
        return cosine.max(axis=1), cosine.argmax(axis=1)

    def merge(self, gone: np.ndarray, u: np.ndarray, j: np.ndarray, merged: np.ndarray) -> None:
        for held in (self.keys, self.values):
            into = {}
            for e, weight, slot, yes in zip(gone, u, j, merged):
                if yes:
                    into.setdefault(int(slot), [held[self.at[slot]]]).append(weight * held[e])
            for slot, rows in into.items():
                held[self.at[slot]] = np.mean(rows, axis=0)
