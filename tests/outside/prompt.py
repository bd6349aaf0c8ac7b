"""Policies that evict once, at the end of the prompt (the SnapKV family)."""

import numpy as np

from drop import blocks_of, budget_after
from parts import Log, REDUCE, best, causal_weights, pooled, softmax
from traces import Trace


def window_weights(t: Trace, layer: int, head: int, window: int) -> np.ndarray:
    """Returns weights [group, window, prompt]."""
    first = t.prompt - window
    return causal_weights(t.q_rows(layer, head, first, t.prompt), first, t.keys[layer][head][:t.prompt], np.arange(t.prompt))


def window_scores(t: Trace, layer: int, head: int, p: dict) -> list:
    """Returns [(head's name, scores of the tokens before the window)]; scores are reduced over the group and then pooled."""
    sums = window_weights(t, layer, head, p['window']).sum(axis=1)[:, :t.prompt - p['window']]
    if p['group'] == 'per_head':
        return [(head * t.group + i, pooled(row, p['pool'], p['pool_kernel'])) for i, row in enumerate(sums)]
    return [(head, pooled(REDUCE[p['group'].split('_')[0]](sums), p['pool'], p['pool_kernel']))]


def rest(scores, at, count: int, p: dict) -> list:
    """Returns the indices of the tokens before the window (positions `at`) that stay: sink and recent, then the best, `count` in all."""
    count = min(count, len(scores))
    after = min(count, max(0, p['recent'] - p['window']))
    sinks, end = int(np.sum(np.asarray(at)[:len(scores)] < min(p['sink'], count - after))), len(scores) - after
    chosen = best(scores[sinks:end], count - sinks - after)
    return list(range(sinks)) + [sinks + i for i in chosen] + list(range(end, len(scores)))


def kept_lines(log: Log, t: Trace, layer: int, name: int, kept: list, kind: str) -> None:
    """Logs the kept prompt tokens, which stay for all steps, and all generated tokens."""
    for step in range(-1, t.steps):
        log.add(layer, step, name, list(kept) + list(range(t.prompt, t.prompt + step + 1)), kind=kind)


def window_steps(log: Log, t: Trace, p: dict, layer: int, name: int, kept: list, kind: str) -> None:
    """Adds the steps after a prompt that keeps these tokens. With decode_eviction a step's own weights rank the tokens before the
    last window."""
    if not p.get('decode_eviction'):
        return kept_lines(log, t, layer, name, kept, kind)
    at, window = np.array(list(kept), int), p['window']
    head, mine = (name // t.group, [name % t.group]) if kind == 'q_head' else (name, list(range(t.group)))
    log.add(layer, -1, name, at, kind=kind)
    for step in range(t.steps):
        now = t.prompt + step
        attended = at = np.append(at, now)
        budget = budget_after(p, t.prompt, now + 1)
        if len(at) > budget:
            weights = causal_weights(t.q(layer, head, now)[mine][:, None], now, t.keys[layer][head][at], at)[:, 0, :len(at) - window]
            row = weights[0] if kind == 'q_head' else REDUCE[p['group'].split('_')[0]](weights)
            at = np.concatenate([at[rest(pooled(row, p['pool'], p['pool_kernel']), at, budget - window, p)], at[-window:]])
        log.add(layer, step, name, attended, kind=kind, evicted=set(attended) - set(at))


def window_policy(t: Trace, p: dict, counts) -> Log:
    """counts(layer, [(name, scores)] of all heads) returns the number of tokens before the window that each list keeps, None: all."""
    log = Log()
    for layer in sorted(t.keys):
        kind = 'q_head' if p['group'] == 'per_head' else 'kv_head'
        if t.prompt <= p['window']:
            lists = [(h, None) for h in range(t.n_q if kind == 'q_head' else t.n_kv)]
            keep = [None] * len(lists)
        else:
            lists = [pair for head in range(t.n_kv) for pair in window_scores(t, layer, head, p)]
            keep = counts(layer, lists)
        for (name, scores), count in zip(lists, keep):
            everything = range(t.prompt)
            kept = everything if count is None else rest(scores, everything, count, p) + list(range(t.prompt - p['window'], t.prompt))
            window_steps(log, t, p, layer, name, kept, kind)
    return log


def snapkv(t: Trace, p: dict) -> Log:
    if p['block'] != 'prompt':
        return in_blocks(t, p, lambda weights: weights.sum(axis=1))
    flat = None if t.prompt <= p['budget'] else p['budget'] - p['window']
    return window_policy(t, p, lambda layer, lists: [flat] * len(lists))


def in_blocks(t: Trace, p: dict, score) -> Log:
    """Evicts after each block. score(weights [group, window, tokens]) returns [group, tokens]."""
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys, at = t.keys[layer][head], np.array([], int)
            for begin, end in blocks_of(t.prompt, p['block']):
                at = np.concatenate([at, np.arange(begin, end)])
                if len(at) <= p['budget']:
                    continue
                first = end - p['window']
                weights = causal_weights(t.q_rows(layer, head, first, end), first, keys[at], at)
                scored = np.flatnonzero(at < first)
                scores = pooled(REDUCE[p['group'].split('_')[0]](score(weights))[scored], p['pool'], p['pool_kernel'])
                at = np.concatenate([at[scored[rest(scores, at, p['budget'] - (end - first), p)]], np.arange(first, end)])
            window_steps(log, t, p, layer, head, at, 'kv_head')
    return log


def pyramid_counts(t: Trace, p: dict, layer: int) -> int:
    """Returns the number of tokens before the window that a layer keeps."""
    window, scored = p['window'], t.prompt - p['window']
    base = p['budget'] - window
    if p.get('schedule', 'whole') == 'smooth':
        low = p['budget'] / p['beta']
        high = 2 * p['budget'] - low
        if high >= scored:
            high, low = scored, 2 * p['budget'] - scored
        if not t.prompt >= high >= low >= window or t.n_layers == 1:
            return base
        return int(round(high - layer * (high - low) / (t.n_layers - 1))) - window
    if t.n_layers == 1:
        return min(2 * base - base // p['beta'], scored) if t.prompt >= 2 * base else base
    low = int(base // p['beta'])
    high = 2 * base - low
    if t.prompt < 2 * base:
        return base
    if high >= scored:
        high, low = scored, 2 * base - scored
    return high - layer * ((high - low) // (t.n_layers - 1))


def pyramidkv(t: Trace, p: dict) -> Log:
    def counts(layer, lists):
        return [None if t.prompt <= p['budget'] else pyramid_counts(t, p, layer)] * len(lists)
    return window_policy(t, p, counts)


def adakv(t: Trace, p: dict) -> Log:
    def counts(layer, lists):
        if t.prompt <= p['budget']:
            return [None] * len(lists)
        base = p['budget'] - p['window']
        if p['layers'] == 'pyramid':
            base = pyramid_counts(t, {**p, 'beta': 20}, layer)
        scores = [scores for _, scores in lists]
        scored = len(scores[0])
        if p['variant'] == 'kvpress':
            certain = [set(best(s, int(base * p['floor']))) for s in scores]
            flat = np.concatenate([np.where([i in c for i in range(scored)], np.inf, s) for s, c in zip(scores, certain)])
            chosen = best(flat, base * len(lists))
            return [sum(h * scored <= i < (h + 1) * scored for i in chosen) for h in range(len(lists))]
        if p['normalise']:
            scores = [s * s[best(s, base)].sum() / s.sum() for s in scores]
        chosen = best(np.concatenate(scores), base * len(lists))
        won = [sum(h * scored <= i < (h + 1) * scored for i in chosen) for h in range(len(lists))]
        return [round(n * (1 - p['floor']) + np.floor(base * p['floor'])) for n in won]
    return window_policy(t, p, counts)


def headkv(t: Trace, p: dict, importance) -> Log:
    """HeadKV. importance: [n_layers, n_q], sums to 1."""
    window = p['window']
    base = p['budget'] - (window if p['base'] == 'without_window' else 0)
    shares = np.asarray(importance, dtype=float) ** p['power']
    shares = shares / shares.sum()
    lists_a_layer = t.n_q
    pool = (base // p['beta']) * t.n_layers * lists_a_layer
    least = base - base // p['beta']
    caps = np.round(shares * pool + least)

    def counts(layer, lists):
        if t.prompt <= p['budget']:
            return [None] * len(lists)
        if p['group'] == 'per_head':
            return [int(caps[layer][name]) for name, _ in lists]
        return [int(np.round(caps[layer][h * t.group:(h + 1) * t.group].mean())) for h, _ in lists]
    return window_policy(t, p, counts)


def cake(t: Trace, p: dict) -> Log:
    """CAKE with equal budgets for all layers."""
    assert p['layers'] == 'uniform'
    score = lambda weights: weights.mean(axis=1) + p['gamma'] * weights.var(axis=1, ddof=1)
    if p['block'] != 'prompt':
        return in_blocks(t, p, score)
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept = range(t.prompt)
            if t.prompt > p['budget']:
                window = range(t.prompt - p['window'], t.prompt)
                weights = window_weights(t, layer, head, p['window'])[:, :, :t.prompt - p['window']]
                scores = pooled(REDUCE[p['group'].split('_')[0]](score(weights)), p['pool'], p['pool_kernel'])
                kept = rest(scores, range(t.prompt), p['budget'] - p['window'], p) + list(window)
            window_steps(log, t, p, layer, head, kept, 'kv_head')
    return log


def cake_preferences(t: Trace, p: dict) -> dict:
    out = {}
    for layer in sorted(t.keys):
        weights = np.concatenate([window_weights(t, layer, h, p['window']) for h in range(t.n_kv)])[:, :, :t.prompt - p['window']]
        entropy = -(weights * np.log(weights + 1e-10)).sum()
        variance = weights.var(axis=1, ddof=1).sum()
        out[layer] = entropy ** (1 / p['tau1']) * variance ** (1 / p['tau2'])
    return out


def cake_counts(t: Trace, p: dict) -> dict:
    """Returns the number of tokens before the window that each layer keeps by its share of the preference, before the remainder is
    distributed; `exact` if no layer's share exceeds the prompt. All layers are in the trace."""
    preference = cake_preferences(t, p)
    layers = sorted(preference)
    base, scored = p['budget'] - p['window'], t.prompt - p['window']
    total = base * t.n_layers
    counts = {layer: int(preference[layer] / sum(preference.values()) * total) for layer in layers}
    return {'exact': all(c <= scored for c in counts.values()), 'total': total, **counts}


def compress_counts(shares, budget: int, n_layers: int, least: int, factor: float) -> list:
    """Returns CompressKV's allocation, including the window."""
    most = int(factor * budget)
    total = budget * n_layers
    rest = total - least * n_layers
    out = [min(max(least + int(round(s * rest)), least), most) for s in shares]
    while sum(out) < total and any(b < most for b in out):
        at = max((i for i in range(n_layers) if out[i] < most), key=lambda i: (shares[i], -i))
        out[at] += 1
    while sum(out) > total and any(b > least for b in out):
        at = min((i for i in range(n_layers) if out[i] > least), key=lambda i: (shares[i], i))
        out[at] -= 1
    return out


def compresskv(t: Trace, p: dict, retrieving, shares) -> Log:
    """CompressKV. retrieving: [n_layers, n_q] scores of heads; shares: [n_layers], sum to 1. A prompt within a layer's own budget
    stays whole there."""
    log = Log()
    budgets = [p['budget']] * t.n_layers
    if p['layers'] == 'errors':
        budgets = compress_counts(list(shares), p['budget'], t.n_layers, p['least_layer_budget'], p['most_layer_factor'])
    for layer in sorted(t.keys):
        heads = best(retrieving[layer], p['retrieval_heads'])
        kept = range(t.prompt)
        if budgets[layer] < t.prompt:
            rows = [window_weights(t, layer, h // t.group, p['window'])[h % t.group].sum(axis=0)[:t.prompt - p['window']] for h in heads]
            scores = pooled(np.mean(rows, axis=0), p['pool'], p['pool_kernel'])
            kept = rest(scores, range(t.prompt), budgets[layer] - p['window'], p) + list(range(t.prompt - p['window'], t.prompt))
        for head in range(t.n_kv):
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log
