"""Policies that retrieve pages, chunks or clusters."""

from collections.abc import Iterator

import numpy as np

from parts import Closeness, Log, REDUCE, best, bound_scores, page_bounds, reduced, softmax, stored
from traces import Trace


def full(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for step in range(-1, t.steps):
            for head in range(t.n_kv):
                log.add(layer, step, head, range(t.prompt + step + 1))
    return log


def heads_of(t: Trace, group: str) -> list:
    """Returns (kind, name, KV head, rows of the group) for each head."""
    if group == 'per_head':
        return [('q_head', h, h // t.group, slice(h % t.group, h % t.group + 1)) for h in range(t.n_q)]
    return [('kv_head', h, h, slice(None)) for h in range(t.n_kv)]


def steps_of(t: Trace, group: str, log: Log) -> Iterator[tuple]:
    """Yields (layer, step, kind, name, keys up to the step, its queries) for policies that keep the prompt, and logs the prompt."""
    for layer in sorted(t.keys):
        for kind, name, head, rows in heads_of(t, group):
            log.add(layer, -1, name, range(t.prompt), kind=kind)
            for step in range(t.steps):
                length = t.prompt + step + 1
                yield layer, step, kind, name, t.keys[layer][head][:length], t.q(layer, head, length - 1)[rows]


def reduction(p: dict) -> str:
    return 'sum_scores' if p['group'] == 'per_head' else p['group']


def exact_topk(t: Trace, p: dict) -> Log:
    log = Log()
    for layer, step, kind, name, keys, queries in steps_of(t, p['group'], log):
        scores = reduced(reduction(p), queries, lambda q: keys @ q, 1 / np.sqrt(t.d))
        length = len(keys)
        always = [i for i in range(length) if i < p['sink'] or i >= length - p['recent']] if p['budget'] < length else []
        log.add(layer, step, name, among(always, scores, p['budget']), kind=kind)
    return log


def among(always: list, scores: np.ndarray, count: int) -> list:
    """Returns `always` and the best of the others, `count` in all."""
    others = [i for i in range(len(scores)) if i not in set(always)]
    return always + [others[i] for i in best(scores[others], count - len(always))]


def quest(t: Trace, p: dict) -> Log:
    log = Log()
    longest, budget = t.prompt + t.steps, p['budget']
    page, tokens = p['page'], budget
    if p['budget_convention'] == 'traffic':
        page, tokens = max(1, -(-longest // budget)), budget // 2
    count = tokens // page
    for layer, step, kind, name, keys, queries in steps_of(t, p['group'], log):
        length = len(keys)
        if budget >= length:
            log.add(layer, step, name, range(length), kind=kind)
            continue
        low, high = page_bounds(stored(keys, p['summary_format']), page)
        scores = reduced(reduction(p), queries, lambda q: bound_scores(q, low, high), 1 / np.sqrt(t.d))
        if count == 0:  # half of the budget is less than a page
            log.add(layer, step, name, best(np.repeat(scores, page)[:length], tokens), kind=kind)
            continue
        recent = max(p['recent'], int(p['force_last_page']))
        always = [c for c in range(len(scores)) if c * page < p['sink'] or recent > 0 and (c + 1) * page > length - recent]
        chosen = among(always, scores, count)
        log.add(layer, step, name, [i for c in chosen for i in range(c * page, min(length, (c + 1) * page))], kind=kind)
    return log


def freekv(t: Trace, p: dict) -> Log:
    log, page, sink, recent = Log(), p['page'], p['sink'], p['recent']
    inside = p['budget'] - (sink + recent if p['budget_convention'] == 'attended' else 0)
    count = inside // page
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys, before, selected = t.keys[layer][head], None, None
            log.add(layer, -1, head, freekv_static(p, t.prompt) if t.prompt > sink + recent + inside else range(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                q = t.q(layer, head, length - 1)
                if length <= sink + recent + inside:
                    log.add(layer, step, head, range(length))
                    continue
                fresh = best(freekv_scores(p, keys, q, length), count)
                used = fresh
                if selected is not None and p['speculation']:
                    cosine = np.mean([a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(q, before)])
                    if not (p['correction'] and cosine < p['tau']):
                        used = selected
                selected, before = fresh, q
                tokens = {sink + c * page + i for c in used for i in range(page)}
                log.add(layer, step, head, tokens | set(freekv_static(p, length)))
    return log


def freekv_window(p: dict, length: int) -> int:
    """Returns the first page of the local window."""
    full, partial = divmod(max(0, length - p['sink']), p['page'])
    return full - max(0, p['recent'] // p['page'] - (1 if partial > p['page'] / 2 else 0))


def freekv_static(p: dict, length: int) -> list:
    first = p['sink'] + freekv_window(p, length) * p['page']
    return [i for i in range(length) if i < p['sink'] or i >= first]


def freekv_scores(p: dict, keys: np.ndarray, q: np.ndarray, length: int) -> np.ndarray:
    end = p['sink'] + freekv_window(p, length) * p['page']
    low, high = digest(keys[p['sink']:end], p['page'], p['summary'])
    return reduced(p['group'], q, lambda row: bound_scores(row, low, high), 1.0)


def digest(keys: np.ndarray, page: int, summary: str) -> tuple:
    low, high = page_bounds(keys, page)
    if summary == 'cuboid_mean':
        middle = (low + high) / 2
        spread = np.array([np.abs(keys[i * page:(i + 1) * page] - m).mean(axis=0) for i, m in enumerate(middle)])
        low, high = middle - spread, middle + spread
    return low, high


def arkvale(t: Trace, p: dict) -> Log:
    log, page = Log(), p['page']
    room, sinks = p['budget'] // page, -(-p['sink'] // page)
    window = max(1, -(-p['recent'] // page))
    for layer in sorted(t.keys):
        scopes = [list(range(t.n_kv))] if p['selection_heads'] == 'layer' else [[h] for h in range(t.n_kv)]
        for scope in scopes:
            def scores_of(length, pages):
                rows = []
                for head in scope:
                    low, high = digest(t.keys[layer][head][:pages * page], page, p['summary'])
                    raw = np.stack([bound_scores(row, low, high) for row in t.q(layer, head, length - 1)])
                    rows.append(softmax(raw / np.sqrt(t.d)) if p['group'].endswith('weights') else raw)
                return REDUCE[p['group'].split('_')[0]](np.concatenate(rows))

            def tokens(pages, length):
                return [i for c in pages for i in range(c * page, min(length, (c + 1) * page))]

            if p['budget'] >= t.prompt:
                resident = set(range(-(-t.prompt // page)))
            else:
                last = -(-t.prompt // page) - 1
                certain = set(range(sinks)) | set(range(max(0, last - window + 1), last + 1))
                free = [i for i in range(t.prompt // page) if i not in certain]
                scores = scores_of(t.prompt, t.prompt // page)
                resident = certain | {free[i] for i in best(scores[free], room - len(certain))}
            for head in scope:
                log.add(layer, -1, head, tokens(sorted(resident), t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                current = (length - 1) // page
                certain = set(range(sinks)) | set(range(max(0, current - window + 1), current + 1))
                wanted = set()
                before = set(tokens(resident, length - 1))
                resident = resident | {current}
                if current + 1 > room and p['budget'] < length:
                    scores = scores_of(length, current)
                    free = [i for i in range(current) if i not in certain]
                    count = p['topk'] - sinks - (window - 1)
                    wanted = {free[i] for i in best(scores[free], min(count, room - len(certain)))}
                    resident |= wanted | {c for c in certain if c <= current}
                    while len(resident) > room:
                        movable = sorted(resident - certain - wanted)
                        resident.remove(min(movable, key=lambda c: (scores[c], -c)))
                now = tokens(sorted(resident), length)
                for head in scope:
                    log.add(layer, step, head, now, fetched=set(now) - before - {length - 1})
    return log


def shadowkv(t: Trace, p: dict) -> Log:
    log, size = Log(), p['page']
    chunks = max(0, t.prompt - p['recent']) // size
    how, _, what = p['group'].partition('_')
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys = t.keys[layer][head]
            blocks = keys[:chunks * size].reshape(chunks, size, t.d)
            landmarks = blocks.mean(axis=1)
            similarity = np.array([min(k @ m / (np.linalg.norm(k) * np.linalg.norm(m)) for k in block)
                                   for block, m in zip(blocks, landmarks)])
            outliers = best(-similarity, p['outliers'])
            others = [c for c in range(chunks) if c not in outliers]

            def select(position):
                if not others:
                    return []
                scores = reduced(p['group'], t.q(layer, head, position), lambda q: landmarks[others] @ q, 1 / np.sqrt(t.d))
                return [others[i] for i in best(scores, p['budget'] // size)]

            static = set(range(chunks * size, t.prompt)) | {c * size + i for c in outliers for i in range(size)}
            held = set(select(t.prompt - 1))
            spread = lambda some: {c * size + i for c in some for i in range(size)}
            log.add(layer, -1, head, static | spread(held))
            for step in range(t.steps):
                length = t.prompt + step + 1
                if p['budget'] >= t.prompt + t.steps:
                    log.add(layer, step, head, range(length))
                    continue
                now = set(select(length - 1))
                log.add(layer, step, head, static | set(range(t.prompt, length)) | spread(now), fetched=spread(now - held))
                held = now
    return log


def squeezed_attention(t: Trace, p: dict) -> Log:
    """Squeezed attention with one cluster per key, so that the estimate is exact."""
    assert p['centroid_share'] == 1
    log, window = Log(), p['window']
    clustered = t.prompt - window
    def shares(layer, head, position):
        return softmax(t.q(layer, head, position) @ t.keys[layer][head][:clustered].T / np.sqrt(t.d))
    estimates = {(layer, head): np.mean([shares(layer, head, i) for i in range(clustered, t.prompt)], axis=0).max(axis=0)
                 for layer in sorted(t.keys) for head in range(t.n_kv)}
    threshold = np.quantile(np.concatenate(list(estimates.values())), p['sparsity'])
    see = lambda shares: [Closeness.see(x, threshold) if x != threshold else Closeness.see_tie(False) for x in shares]
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                now = shares(layer, head, t.prompt + step).max(axis=0)
                see(now)
                log.add(layer, step, head, list(np.flatnonzero(now > threshold)) + list(range(clustered, t.prompt + step + 1)))
    return log
