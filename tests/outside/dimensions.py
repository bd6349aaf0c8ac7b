"""Policies that estimate scores in a few dimensions, policies that also use the CPU, and RocketKV."""

import numpy as np

from parts import Log, REDUCE, always, best, page_bounds, reduced, softmax, stored
from pages import heads_of
from prompt import window_scores
from traces import Trace


def sparq_dims(t: Trace, p: dict) -> tuple:
    longest = t.prompt + t.steps
    if p['budget_convention'] == 'traffic':
        return min(max(round(t.d * p['budget'] / longest), 1), t.d), p['budget'] // 2
    return min(p['dims'], t.d), p['budget']


def norm_share(q: np.ndarray, chosen: list) -> float:
    whole = np.abs(q).sum()
    return np.abs(q[chosen]).sum() / whole if whole else 1.0


def sparq(t: Trace, p: dict) -> Log:
    log = Log()
    dims, count = sparq_dims(t, p)
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                if p['budget'] >= length:
                    log.add(layer, step, head, range(length))
                    continue
                keys, q = t.keys[layer][head][:length], t.q(layer, head, length - 1)
                chosen = best(np.abs(q).sum(axis=0), dims)
                logits = np.stack([keys[:, chosen] @ row[chosen] / np.sqrt(max(t.d * norm_share(row, chosen), 1e-300)) for row in q])
                how, _, what = p['group'].partition('_')
                scores = REDUCE[how](softmax(logits) if what == 'weights' else logits)
                log.add(layer, step, head, best(always(scores, p, length), count + 1))
    return log


def loki(t: Trace, p: dict) -> Log:
    log = Log()
    dims = min(p['dims'], t.d)
    first = p['calibration_tokens'] or t.prompt
    for layer in sorted(t.keys):
        for kind, name, head, rows in heads_of(t, p['group']):
            sample = t.keys[layer][head][:first]
            sample = sample - sample.mean(axis=0)
            _, vectors = np.linalg.eigh(sample.T @ sample)
            basis = vectors[:, ::-1][:, :dims]
            group = 'sum_scores' if p['group'] == 'per_head' else p['group']
            log.add(layer, -1, name, range(t.prompt), kind=kind)
            for step in range(t.steps):
                length = t.prompt + step + 1
                keys = t.keys[layer][head][:length] @ basis
                scores = reduced(group, t.q(layer, head, length - 1)[rows] @ basis, lambda q: keys @ q, 1 / np.sqrt(t.d))
                log.add(layer, step, name, best(always(scores, p, length), p['budget']), kind=kind)
    return log


def hsa_sizes(ratio: float, d: int, rounding: str) -> tuple:
    """Returns (page, k1)."""
    page = int(np.ceil(np.sqrt(ratio) - 1e-12))
    page = page if page <= ratio else 1
    exact = d * page / ratio
    return page, min(d, max(1, round(exact) if rounding == 'nearest' else int(exact + 1e-9)))


def hsa_select(t: Trace, p: dict, layer: int, head: int, held: np.ndarray, page: int, k1: int, count: int) -> list:
    """Returns those `count` of the held tokens (positions in order) that the estimate ranks highest for the last one's query."""
    q = t.q(layer, head, int(held[-1]))
    low, high = page_bounds(stored(t.keys[layer][head][held], p['summary_format']), page)
    chosen = best(np.abs(q).sum(axis=0), k1)
    sign = q.sum(axis=0)[chosen]
    take_high = sign > 0 if p['zero_sign'] == 'min' else sign >= 0
    bound = np.where(take_high, high[:, chosen], low[:, chosen])
    rows = []
    for row in q:
        correction = norm_share(row, chosen) if p['norm_correction'] else 1.0
        rows.append(bound @ row[chosen] / np.sqrt(max(t.d * correction, 1e-300)))
    tokens = np.stack(rows)[:, np.arange(len(held)) // page]
    how, _, what = p['group'].partition('_')
    scores = REDUCE[how](softmax(tokens) if what == 'weights' else tokens)
    return list(held[best(scores, count)])


def planned(t: Trace, p: dict) -> int:
    return t.steps if p['max_new_tokens'] == 'decode_steps' else int(p['max_new_tokens'])


def hsa(t: Trace, p: dict) -> Log:
    log, budget = Log(), p['budget']
    page, k1 = hsa_sizes(max(1.0, (t.prompt + t.steps) / budget), t.d, p['dims_rounding'])
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                held = np.arange(t.prompt + step + 1)
                dense = budget >= len(held)
                log.add(layer, step, head, held if dense else hsa_select(t, p, layer, head, held, page, k1, budget // 2))
    return log


def rocket_sizes(t: Trace, p: dict) -> tuple:
    """Returns (N, number of prompt tokens kept)."""
    more = planned(t, p)
    longest, budget = t.prompt + t.steps, p['budget']
    c = max(1.0, longest / budget)
    r = min(0.2 + 0.06 * np.log2(c), 0.8) if p['split_factor'] == 'adaptive' else float(p['split_factor'])
    held = int(longest / c ** r)
    held = max(held, min(2 * more, longest))
    return held, held - more


def rocketkv(t: Trace, p: dict, multi_turn: bool = False) -> Log:
    log, budget = Log(), p['budget']
    total, prompt_budget = rocket_sizes(t, p)
    page, k1 = hsa_sizes(max(1.0, total / budget), t.d, p['dims_rounding'])
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept = np.arange(t.prompt)
            if t.prompt > prompt_budget and budget < t.prompt + t.steps:
                [(_, scores)] = window_scores(t, layer, head, {**p, 'group': p['eviction_group']})
                first = t.prompt - p['window']
                kept = np.array(best(scores, prompt_budget - p['window']) + list(range(first, t.prompt)))
            log.add(layer, -1, head, range(t.prompt) if multi_turn else kept)
            for step in range(t.steps):
                held = np.concatenate([kept, np.arange(t.prompt, t.prompt + step + 1)])
                dense = budget >= min(total, t.prompt + step + 1)
                log.add(layer, step, head, held if dense else hsa_select(t, p, layer, head, held, page, k1, budget // 2))
    return log


def infinigen(t: Trace, p: dict) -> Log:
    """InfiniGen without skewing, so that nothing is random. The number fetched is the mean over the layer's KV heads of the numbers
    wanted."""
    log = Log()
    dims = max(1, int(p['partial_ratio'] * t.d))
    for layer in sorted(t.keys):
        columns = []
        for head in range(t.n_kv):
            rows = t.q_rows(layer, head, int(t.positions[0]), t.prompt)
            columns.append([best(np.abs(rows).sum(axis=(0, 1)), dims)] * t.group)
            log.add(layer, -1, head, [])
        for step in range(t.steps):
            length = t.prompt + step + 1
            scores = []
            for head in range(t.n_kv):
                keys, q = t.keys[layer][head][:length - 1], t.q(layer, head, length - 1)  # the current key and value are on the GPU
                scores.append(np.mean([keys[:, c] @ row[c] for row, c in zip(q, columns[head])], axis=0) / np.sqrt(t.d))
            wanted = np.mean([(s > s.max() - p['alpha']).sum() for s in scores])
            fixed = min(length - 1, p['sink'] + p['recent'] - 1)
            count = max(1, fixed, min(int(wanted), int(p['max_share'] * (length - 1))))
            ends = {**p, 'recent': max(0, p['recent'] - 1)}
            for head in range(t.n_kv):
                found = best(always(scores[head], ends, length - 1), count)
                log.add(layer, step, head, found + [length - 1], fetched=found)
    return log


def retrieval_attention(t: Trace, p: dict) -> Log:
    """RetrievalAttention with a recall of 1: the ranking is exact."""
    log = Log()
    for layer in sorted(t.keys):
        for kind, name, head, rows in heads_of(t, 'per_head'):
            static = [i for i in range(t.prompt) if i < p['sink'] or i >= t.prompt - p['recent']]
            covers = p['budget'] >= t.prompt + t.steps  # nothing leaves the GPU
            log.add(layer, -1, name, range(t.prompt) if covers else static, kind=kind)
            for step in range(t.steps):
                length = t.prompt + step + 1
                first = (t.prompt if p['generated'] == 'gpu' else length) - p['recent']
                static = [i for i in range(length) if i < p['sink'] or i >= first]
                others = np.array([i for i in range(length) if i not in static], int)
                found = others[best(t.keys[layer][head][others] @ t.q(layer, head, length - 1)[rows][0], p['budget'])]
                log.add(layer, step, name, list(static) + list(found), kind=kind)
    return log


def ctkvr(t: Trace, p: dict) -> Log:
    log, budget = Log(), p['budget']
    count = min(2048, t.prompt // 16) if p['centroids'] == 'adaptive' else p['centroids']
    count = max(1, min(count, t.prompt))
    listed = int(p['recall_factor'] * budget)
    at = {'last': range(t.prompt - count, t.prompt), 'first': range(count)}[p['positions']]
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys = t.keys[layer][head]
            centroids, lists = [], []
            allowed = np.arange(p['sink'], max(p['sink'], t.prompt - p['recent']))
            for position in at:
                q = t.q(layer, head, position)
                scores = softmax(q @ keys[:t.prompt].T / np.sqrt(t.d)).max(axis=0)
                centroids.append(q)
                lists.append(set(allowed[best(scores[allowed], listed)]))
            static = lambda length: {i for i in range(length) if i < p['sink'] or i >= length - p['recent']}
            covers = budget >= t.prompt + t.steps
            log.add(layer, -1, head, range(t.prompt) if covers else static(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                q = t.q(layer, head, length - 1)
                similarity = [max(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300) for a, b in zip(q, c))
                              for c in centroids]
                near = best(similarity, p['retrieved_centroids'])
                recalled = set().union(*(lists[i] for i in near))
                if p['departed']:
                    recalled |= set(range(max(p['sink'], t.prompt - p['recent']), length - p['recent']))
                recalled = np.array(sorted(recalled), int)
                ranks = softmax(q @ keys[recalled].T / np.sqrt(t.d)).max(axis=0) if len(recalled) else np.array([])
                chosen = set(recalled[best(ranks, budget)]) if p['rerank'] else set(recalled)
                if p['update']:
                    centroids = centroids[1:] + [q]
                    lists = lists[1:] + [set(recalled[best(ranks, listed)])]
                log.add(layer, step, head, range(length) if covers else static(length) | chosen)
    return log
