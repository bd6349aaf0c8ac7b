"""Policies published after the others: by expected, repeated, pooled or shared attention."""

from statistics import NormalDist

import numpy as np

from drop import blocks_of, protected_best
from pages import among, reduction, steps_of
from parts import Closeness, Log, always, best, pooled, reduced, softmax
from prompt import kept_lines, window_scores
from traces import Trace


def rotated(x: np.ndarray, positions, theta: float = 10000.0) -> np.ndarray:
    """Applies rotary embedding to [..., tokens, d] at these positions; dimension i is paired with dimension i + d / 2."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(half) / half))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def see_near(values: np.ndarray, bound) -> None:
    """Records values so close to a bound that single precision may place them on its other side."""
    if (np.abs(values - bound) < 1e-6 * np.maximum(np.abs(values), 1e-3)).any():
        Closeness.see_tie(False)


def expected_attention(t: Trace, p: dict) -> Log:
    log, sink = Log(), p['sink']
    seen = t.prompt if p['queries'] == 'prompt' else int(p['queries'])
    first = max(sink, t.prompt - seen)
    ahead = range(t.prompt, t.prompt + p['future'])
    turn = np.mean([rotated(np.eye(t.d), [i] * t.d).T for i in ahead], axis=0)
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept = range(t.prompt)
            if t.prompt > p['budget']:
                keys, values = t.keys[layer][head][sink:t.prompt], t.values[layer][head][sink:t.prompt]
                rows = rotated(t.q_rows(layer, head, first, t.prompt), -np.arange(first, t.prompt))
                scores = np.mean([expected_weights(q, keys, turn, p['covariance']) for q in rows], axis=0)
                if p['value_norm']:
                    scores = (scores + p['epsilon']) * np.linalg.norm(values, axis=1)
                scores = always(np.append(np.zeros(sink), scores), p, t.prompt)
                kept = best(scores, p['budget'])
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log


def expected_weights(q: np.ndarray, keys: np.ndarray, turn: np.ndarray, covariance: bool) -> np.ndarray:
    """Returns the softmax of log E[exp(q·k / √d)] over queries with these moments; q: unrotated rows of a query head."""
    d, mean = q.shape[1], q.mean(axis=0)
    logits = keys @ (turn @ mean) / np.sqrt(d)
    if covariance:
        spread = turn @ ((q - mean).T @ (q - mean) / len(q)) @ turn.T
        logits = logits + np.einsum('ti,ij,tj->t', keys, spread, keys) / (2 * d)
    return softmax(logits)


def kvzip_scores(t: Trace, p: dict, layer: int, head: int, after: int = 0) -> np.ndarray:
    """Returns the largest weight that each token of the prompt (after > 0: each of so many generated ones) gets from any query while
    its chunk is repeated after them."""
    from_, until = (t.prompt, t.prompt + after) if after else (0, t.prompt)
    keys, scores = t.keys[layer][head][:until], np.zeros(until)
    for begin, end in [(from_ + a, from_ + b) for a, b in blocks_of(until - from_, p['chunk'])]:
        size, sinks = end - begin, min(p['sink'], begin)
        later = [until - begin] * size
        known = np.concatenate([keys[:sinks], keys[begin:end], rotated(keys[begin:end], later)])
        logits = rotated(t.q_rows(layer, head, begin, end), later) @ known.T / np.sqrt(t.d)
        unseen = np.triu(np.ones((size, size), bool), 1)
        logits[:, :, sinks + size:][:, unseen] = -np.inf
        scores[begin:end] = softmax(logits)[:, :, sinks:sinks + size].max(axis=(0, 1))
    return scores[from_:]


def kvzip(t: Trace, p: dict) -> Log:
    log, sink = Log(), p['sink']
    for layer in sorted(t.keys):
        kept = [list(range(t.prompt))] * t.n_kv
        if t.prompt > p['budget']:
            last = t.prompt - p['recent']
            scores = [kvzip_scores(t, p, layer, head)[sink:last] for head in range(t.n_kv)]
            count, size = p['budget'] - sink - p['recent'], last - sink
            if p['scope'] == 'layer':
                chosen = best(np.concatenate(scores), count * t.n_kv)
                won = [[i % size for i in chosen if i // size == head] for head in range(t.n_kv)]
            else:
                won = [best(s, count) for s in scores]
            kept = [list(range(sink)) + [sink + i for i in w] + list(range(last, t.prompt)) for w in won]
        for head in range(t.n_kv):
            kept_lines(log, t, layer, head, kept[head], 'kv_head')
    return log


def kvzap(t: Trace, p: dict) -> Log:
    log, window, setting = Log(), p['window'], {'sink': 4, 'chunk': p['chunk']}
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            scores = np.log(kvzip_scores(t, setting, layer, head))
            if p['decoding']:
                scores = np.append(scores, np.log(kvzip_scores(t, setting, layer, head, t.steps)))
            see_near(scores, p['threshold'])
            scores[:p['sink']] = np.inf
            at = [i for i in range(t.prompt) if i >= t.prompt - window or scores[i] >= p['threshold']]
            log.add(layer, -1, head, at)
            for step in range(t.steps):
                at, gone = at + [t.prompt + step], []
                if p['decoding']:
                    left = t.prompt + step - window
                    gone = [i for i in at if i == left and scores[i] < p['threshold']]
                at = [i for i in at if i not in gone]
                log.add(layer, step, head, at, evicted=set(gone))
    return log


def window_means(t: Trace, p: dict, layer: int) -> np.ndarray:
    """Returns [KV heads, prompt]: mean weights from the last queries, pooled; those queries' own tokens have the layer's maximum."""
    rows = np.stack([window_scores(t, layer, head, p)[0][1] for head in range(t.n_kv)]) / p['window']
    return np.concatenate([rows, np.full((t.n_kv, p['window']), rows.max(initial=0))], axis=1)


def chunkkv(t: Trace, p: dict) -> Log:
    log, size = Log(), p['chunk']
    for layer in sorted(t.keys):
        kept = range(t.prompt)
        if t.prompt > p['budget']:
            total, starts = window_means(t, p, layer).sum(axis=0), range(0, t.prompt, size)
            stays = lambda i: i >= t.prompt - p['window'] or i + size > t.prompt - p['recent'] or i < p['sink']
            scores = [np.inf if stays(i) else total[i:i + size].mean() for i in starts]
            chosen = best(scores, p['budget'] // size)
            kept = [i for c in chosen for i in range(c * size, min(t.prompt, (c + 1) * size))]
        for head in range(t.n_kv):
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log


def specprefill(t: Trace, p: dict) -> Log:
    log, size, count = Log(), p['chunk'], -(-p['budget'] // p['chunk'])
    kept = range(t.prompt)
    if count * size < t.prompt:
        importance = np.zeros(t.prompt)
        for step in range(min(p['look_ahead'], t.steps)):
            rows = []
            for layer in t.keys:
                for head in range(t.n_kv):
                    weights = softmax(t.q(layer, head, t.prompt + step) @ t.keys[layer][head][:t.prompt].T / np.sqrt(t.d))
                    rows += [pooled(row, 'avg', p['pool_kernel']) for row in weights]
            importance += np.max(rows, axis=0)
        chosen = best([importance[i:i + size].mean() for i in range(0, t.prompt, size)], count)
        kept = [i for c in chosen for i in range(c * size, min(t.prompt, (c + 1) * size))]
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log


def lag_spread(x: np.ndarray, lag: int) -> np.ndarray:
    """Returns [partitions - 1, lag]: softmax of the deviation over channels, scaled by the next partition's extremes."""
    parts = x.reshape(-1, lag, x.shape[-1])
    low, high = parts[1:].min(axis=1, keepdims=True), parts[1:].max(axis=1, keepdims=True)
    width = np.where(high > low, high - low, np.inf)
    deviation = ((parts[:-1] - low) / width).std(axis=2, ddof=1) if x.shape[-1] > 1 else np.zeros(parts[:-1].shape[:2])
    return softmax(deviation)


def lagkv(t: Trace, p: dict) -> Log:
    log, sink, lag = Log(), p['sink'], p['lag']
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept = range(t.prompt)
            if t.prompt > p['budget']:
                end = sink + (t.prompt - sink) // lag * lag
                both = sum(lag_spread(x[layer][head][sink:end], lag) for x in (t.keys, t.values))
                scores = np.ones(t.prompt)
                for i, row in enumerate(both):
                    ordered = np.sort(row)
                    Closeness.see_tie(False) if lag > 1 and (np.diff(ordered) < 1e-6 * ordered[1:]).any() else None
                    scores[sink + i * lag:sink + (i + 1) * lag] = np.argsort(np.argsort(row, kind='stable')) / lag
                kept = protected_best(scores, np.arange(t.prompt), t.prompt, p['budget'], sink, p['recent'])
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log


def criticalkv(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            kept = range(t.prompt)
            if t.prompt > p['budget']:
                scores = window_means(t, p, layer)[head]
                ranked = scores.copy()
                ranked[t.prompt - max(p['window'], p['recent']):] = ranked[:p['sink']] = np.inf
                first = best(ranked, int(p['first_stage'] * p['budget'] + 1e-9))
                norms = np.linalg.norm(t.values[layer][head][:t.prompt], axis=1)
                second = (scores + p['epsilon']) * norms
                second[first] = np.inf
                kept = best(second, p['budget'])
            kept_lines(log, t, layer, head, kept, 'kv_head')
    return log


def rkv(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            at = np.array([], int)
            for begin, end in blocks_of(t.prompt, p['block']):
                at = rkv_compressed(t, p, layer, head, np.concatenate([at, np.arange(begin, end)]))
            log.add(layer, -1, head, at)
            for step in range(t.steps):
                attended = np.append(at, t.prompt + step)
                at = rkv_compressed(t, p, layer, head, attended)
                log.add(layer, step, head, attended, evicted=set(attended) - set(at))
    return log


def rkv_compressed(t: Trace, p: dict, layer: int, head: int, at: np.ndarray) -> np.ndarray:
    """Returns the held tokens (positions `at`) that are kept once they fill the buffer."""
    if len(at) < p['budget'] + p['buffer']:
        return at
    window, keys = p['window'], t.keys[layer][head][at]
    q = t.q_rows(layer, head, at[-1] + 1 - window, at[-1] + 1)
    logits = np.einsum('gwd,td->gwt', q, keys[:-window]).max(axis=0) / np.sqrt(t.d)
    importance = pooled(softmax(logits).mean(axis=0), 'max', p['pool_kernel'])
    scores = p['lambda'] * importance - (1 - p['lambda']) * redundancy(keys, p['similarity'])[:-window]
    scores = np.append(scores, np.zeros(window))
    return at[protected_best(scores, at, at[-1] + 1, p['budget'], p['sink'], max(window, p['recent']))]


def skipkv(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        at = np.array([], int)
        for begin, end in blocks_of(t.prompt, p['block']):
            at = skipkv_compressed(t, p, layer, np.concatenate([at, np.arange(begin, end)]))
        for head in range(t.n_kv):
            log.add(layer, -1, head, at)
        for step in range(t.steps):
            attended = np.append(at, t.prompt + step)
            at = skipkv_compressed(t, p, layer, attended)
            for head in range(t.n_kv):
                log.add(layer, step, head, attended, evicted=set(attended) - set(at))
    return log


def skipkv_compressed(t: Trace, p: dict, layer: int, at: np.ndarray) -> np.ndarray:
    """Returns the tokens of the layer (positions `at`) that are kept once they fill the buffer."""
    if len(at) < p['budget'] + p['buffer']:
        return at
    free = np.flatnonzero(at >= p['sink'])
    logits = [t.q(layer, head, at[-1]) @ t.keys[layer][head][at[free]].T / np.sqrt(t.d) for head in range(t.n_kv)]
    scores = np.zeros(len(at))
    scores[free] = softmax(np.concatenate(logits)).max(axis=0)
    window = free[:len(free) - p['recent']][-p['compared']:] if p['compared'] else []
    if len(window):
        keys = np.concatenate([t.keys[layer][head][at[window]] for head in range(t.n_kv)], axis=1)
        scores[window] -= p['alpha'] * softmax(repeated(keys, p['similarity'])) + passages(keys, p['passage'], p['passage_similarity'])
    return at[protected_best(scores, at, at[-1] + 1, p['budget'], p['sink'], p['recent'])]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def repeated(keys: np.ndarray, similarity: float) -> np.ndarray:
    """Returns each token's mean cosine with others that are similar, without the last later one."""
    cosine = unit_rows(keys) @ unit_rows(keys).T
    np.fill_diagonal(cosine, 0)
    if similarity:
        see_near(cosine, similarity)
        cosine[cosine < similarity] = 0
    for i, row in enumerate(cosine):
        later = [j for j in np.flatnonzero(row > 0) if j > i]
        row[later[-1:]] = 0
    return cosine.mean(axis=1)


def passages(keys: np.ndarray, length: int, similarity: float) -> np.ndarray:
    """Returns for each token the largest cosine of its passage's mean with a later one's, if they are similar."""
    means = unit_rows(np.array([keys[i:i + length].mean(axis=0) for i in range(0, len(keys), length)]))
    cosine = np.triu(means @ means.T, 1)
    see_near(cosine, similarity)
    return np.repeat(np.where(cosine >= similarity, cosine, 0).max(axis=1), length)[:len(keys)]


def redundancy(keys: np.ndarray, similarity: float) -> np.ndarray:
    """Returns the softmax of each key's mean cosine with the other keys. Each of the others leaves out the last key that is
    similar to it; one without similar keys leaves out the first key, where the search of the released code ends."""
    unit = keys / np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), 1e-300)
    cosine = unit @ unit.T
    see_near(cosine, similarity)
    np.fill_diagonal(cosine, 0)
    for row in cosine:
        row[max(np.flatnonzero(row > similarity), default=0)] = 0
    return softmax(cosine.mean(axis=0))


def distinct(t: Trace) -> bool:
    """Returns whether all keys of each head are distinct."""
    return all(len(np.unique(keys, axis=0)) == len(keys) for layer in t.keys.values() for keys in layer)


def infllm_v2(t: Trace, p: dict) -> Log:
    log, page, kernel = Log(), p['page'], p['kernel']
    Closeness.ties_hold |= distinct(t)  # then most ties are between neighbouring blocks, by the run that they share
    for layer, step, kind, name, keys, queries in steps_of(t, 'one', log):
        length = len(keys)
        if length <= max(p['budget'], p['dense_below']):
            log.add(layer, step, name, range(length))
            continue
        starts = np.arange(0, length - kernel + 1, p['stride'])
        means = np.array([keys[i:i + kernel].mean(axis=0) for i in starts])
        weights = softmax(queries @ means.T / np.sqrt(t.d)).sum(axis=0) if len(starts) else np.array([])
        blocks = range(-(-length // page))
        scores = np.array([weights[(starts < (c + 1) * page) & (starts + kernel > c * page)].max(initial=0) for c in blocks])
        for score in set(scores[scores > 0]):
            equal = np.flatnonzero(scores == score)
            if equal[-1] - equal[0] > -(-kernel // page):
                Closeness.see_tie(False)  # equal weights of two runs
        certain = [c for c in blocks if c * page < p['sink'] or c >= len(blocks) - 1 - -(-p['recent'] // page)]
        log.add(layer, step, name, tokens_of(among(certain, scores, p['budget'] // page), page, length))
    return log


def nsa(t: Trace, p: dict) -> Log:
    log, page, kernel = Log(), p['page'], p['kernel']
    for layer, step, kind, name, keys, queries in steps_of(t, 'one', log):
        length = len(keys)
        if length <= p['budget']:
            log.add(layer, step, name, range(length))
            continue
        starts = np.arange(0, length - kernel + 1, p['stride'])
        means = np.array([keys[i:i + kernel].mean(axis=0) for i in starts])
        weights = softmax(queries @ means.T / np.sqrt(t.d)).sum(axis=0) if len(starts) else np.array([])
        blocks = range(-(-length // page))
        inside = lambda c: np.minimum(starts + kernel, (c + 1) * page) - np.maximum(starts, c * page)
        scores = np.array([(weights * np.maximum(inside(c), 0)).sum() / p['stride'] for c in blocks])
        certain = [c for c in blocks if c * page < p['sink'] or c >= len(blocks) - 1 - -(-p['recent'] // page)]
        chosen = tokens_of(among(certain, scores, p['budget'] // page), page, length)
        log.add(layer, step, name, {*chosen, *range(max(0, length - p['window']), length)})
    return log


def tokens_of(blocks: list, page: int, length: int) -> list:
    return [i for c in blocks for i in range(c * page, min(length, (c + 1) * page))]


def seer_attention(t: Trace, p: dict) -> Log:
    log, page = Log(), p['page']
    for layer, step, kind, name, keys, queries in steps_of(t, 'one', log):
        length = len(keys)
        weights = softmax(queries @ keys.T / np.sqrt(t.d)).max(axis=0)
        scores = np.array([weights[i:i + page].max() for i in range(0, length, page)])
        last = len(scores) - 1
        everything = p['budget'] >= length and not p['threshold']
        ranked = always(scores, p, length, page)
        chosen = best(ranked, len(scores) if everything else p['budget'] // page)
        if p['threshold']:
            see_near(scores, p['threshold'] * scores.sum())
            chosen = [c for c in chosen if ranked[c] > p['threshold'] * scores.sum()]
        log.add(layer, step, name, tokens_of(sorted({*chosen, last}), page, length))
    return log


def in_bits(x: np.ndarray, bits: int) -> np.ndarray:
    """Rounds rows to 2^bits levels between their smallest and largest number."""
    if bits >= 16:
        return x
    low, high = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    unit = np.where(high > low, (high - low) / (2 ** bits - 1), 1)
    level = (x - low) / unit
    see_near(level, np.floor(level) + 0.5)
    return np.round(level) * unit + low


def twilight(t: Trace, p: dict, selected: Log) -> Log:
    """Twilight. selected: the tokens of the selector; a KV head reads the tokens that any of its query heads keeps."""
    log = Log()
    for line in selected.lines:
        kind = 'q_head' if 'q_head' in line else 'kv_head'
        name, at = line[kind], line['attended']
        if line['step'] >= 0:
            head = name // t.group if kind == 'q_head' else name
            rows = t.q(line['layer'], head, t.prompt + line['step'])
            rows = rows[name % t.group:name % t.group + 1] if kind == 'q_head' else rows
            keys = in_bits(t.keys[line['layer']][head][at], p['bits'])
            at = set().union(*({at[i] for i in fewest(softmax(keys @ q / np.sqrt(t.d)), p['p'])} for q in rows))
        log.add(line['layer'], line['step'], name, at, kind=kind)
    return log


def fewest(weights: np.ndarray, share: float) -> list:
    """Returns the smallest set of the largest weights whose sum reaches the share."""
    sums = np.cumsum(np.sort(weights)[::-1])
    see_near(sums, share)
    return best(weights, min(int((sums < share).sum()) + 1, len(weights)))


def index_scores(t: Trace, layer: int, heads, length: int) -> np.ndarray:
    """Returns the sum of the weights of all queries of some heads, which an indexer is trained to match."""
    weights = [softmax(t.q(layer, head, length - 1) @ t.keys[layer][head][:length].T / np.sqrt(t.d)) for head in heads]
    return np.concatenate(weights).sum(axis=0)


def indexed(t: Trace, p: dict, layer: int, length: int) -> list:
    return best(always(index_scores(t, layer, range(t.n_kv), length), p, length), p['budget'])


def blocks_indexed(t: Trace, p: dict, choose) -> Log:
    """choose(layer, head, tokens in sight) returns the positions that a head reads once the budget is full."""
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                log.add(layer, step, head, range(length) if length <= p['budget'] else choose(layer, head, length))
    return log


def msa(t: Trace, p: dict) -> Log:
    size = p['block']

    def choose(layer, head, length):
        scores = index_scores(t, layer, [head], length)
        blocks = [scores[i:i + size].max() for i in range(0, length, size)]
        blocks[-1] = np.inf
        return tokens_of(best(always(blocks, p, length, size), p['budget'] // size), size, length)
    return blocks_indexed(t, p, choose)


def qsa(t: Trace, p: dict) -> Log:
    size = p['block']

    def choose(layer, head, length):
        scores, whole = index_scores(t, layer, range(t.n_kv), length), length // size
        groups = scores[:whole * size].reshape(whole, size).mean(axis=1)
        return tokens_of(best(always(groups, p, length, size), p['budget'] // size), size, length) + list(range(whole * size, length))
    return blocks_indexed(t, p, choose)


def dsa(t: Trace, p: dict) -> Log:
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                log.add(layer, step, head, indexed(t, p, layer, t.prompt + step + 1))
    return log


def random_rotation(d: int, seed: int) -> np.ndarray:
    """Returns the Q factor of normal numbers, with positive diagonal of R; rows are directions. The numbers are those of kvcast's
    counter-based stream: SplitMix64's finaliser over multiples of the golden ratio, through the normal quantile."""
    whole, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & whole
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & whole
        return z ^ (z >> 31)
    key = mix(seed + golden & whole)
    draws = [NormalDist().inv_cdf(((mix(key + (i + 1) * golden & whole) >> 12) + 0.5) / 2**52) for i in range(d * d)]
    q, r = np.linalg.qr(np.array(draws).reshape(d, d).T)
    return (q * np.sign(np.diag(r))).T


def hash_codes(x: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    projected = x @ rotation.T
    if (np.abs(projected) < 1e-5 * np.linalg.norm(x, axis=1, keepdims=True)).any():
        Closeness.see_tie(False)
    return projected > 0


def gsa(t: Trace, p: dict) -> Log:
    rotation, size = random_rotation(t.d, p['seed']), p['page']
    codes = {layer: [hash_codes(keys, rotation) for keys in heads] for layer, heads in t.keys.items()}

    def choose(layer, head, length):
        total = np.zeros(length, int)
        for h in [head] if p['scope'] == 'head' else range(t.n_kv):
            query = hash_codes(t.q(layer, h, length - 1).mean(axis=0)[None], rotation)[0]
            total += (codes[layer][h][:length] != query).sum(axis=1)
        starts = range(0, length, size)
        scores = always([-total[i:i + size].min() for i in starts], p, length, size)
        return tokens_of(best(scores, p['budget'] // size), size, length)
    return blocks_indexed(t, {'budget': max(p['budget'], p['dense_below'])}, choose)


def blasst(t: Trace, p: dict) -> Log:
    log, size = Log(), p['tile']
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            log.add(layer, -1, head, range(t.prompt))
            for step in range(t.steps):
                length = t.prompt + step + 1
                rows = t.q(layer, head, length - 1) @ t.keys[layer][head][:length].T / np.sqrt(t.d)
                log.add(layer, step, head, tokens_of(tiles_taken(rows, size, p['scale_decode'] / length), size, length))
    return log


def tiles_taken(rows: np.ndarray, size: int, threshold: float) -> list:
    """Returns the tiles of keys whose largest score is not far below the largest before it, in any row; −inf: not seen."""
    largest, taken = np.full(len(rows), -np.inf), []
    for tile, first in enumerate(range(0, rows.shape[1], size)):
        top = rows[:, first:first + size].max(axis=1)
        seen = np.isfinite(top)
        below = top[seen] - largest[seen]
        see_near(below[np.isfinite(below)], np.log(threshold))
        if (below >= np.log(threshold)).any():
            taken.append(tile)
        largest = np.maximum(largest, top)
    return taken


class Lru:
    """Units on the GPU by the step of their last use. Among units last used at the same step, for which no source states an order,
    the first one is evicted first."""

    def __init__(self, room: int, first=()):
        self.room, self.used = room, {i: -1 for i in first}

    def use(self, units, step: int) -> tuple:
        """Returns (missing units, evicted units)."""
        missing = [i for i in units if i not in self.used]
        self.used.update({i: step for i in units})
        gone = sorted(self.used, key=lambda i: (self.used[i], i))[:max(0, len(self.used) - self.room)]
        for i in gone:
            del self.used[i]
        return missing, gone


def hisparse(t: Trace, p: dict) -> Log:
    log, room = Log(), p['budget'] + p['spare']
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            held = Lru(room, range(min(room, t.prompt)))
            log.add(layer, -1, head, held.used)
            for step in range(t.steps):
                now = t.prompt + step
                chosen = indexed(t, p, layer, now + 1)
                fits = now < room  # otherwise the newest token is in a slot that the next one overwrites
                missing, gone = held.use({*chosen, now} if fits else set(chosen) - {now}, step)
                log.add(layer, step, head, chosen, fetched=set(missing) - {now}, evicted=[*gone, *([] if fits else [now])])
    return log


def double_sparsity(t: Trace, p: dict) -> Log:
    log = Log()
    first = max(int(t.positions[0]), t.prompt - p['window'])
    for layer, step, kind, name, keys, queries in steps_of(t, p['group'], log):
        head = name // t.group if kind == 'q_head' else name
        large = {'q': np.abs(t.q_rows(layer, head, first, t.prompt)).sum(axis=(0, 1)), 'k': np.abs(keys[:t.prompt]).sum(axis=0)}
        large['qk'] = np.abs(t.q_rows(layer, head, first, t.prompt) * keys[first:t.prompt]).sum(axis=(0, 1))
        chosen = best(large[p['calibrate_on']], p['channels'])
        labels, asked = (in_bits(x[:, chosen], p['label_bits']) for x in (keys, queries))  # both, as in the released code
        scores = reduced(reduction(p), asked, lambda q: labels @ q, 1 / np.sqrt(len(chosen)))
        log.add(layer, step, name, best(always(scores, p, len(scores)), p['budget']), kind=kind)
    return log


def filter_of(t: Trace, p: dict, layer: int) -> int:
    """Returns the filter layer whose selection a layer reads. A replay treats dense and filter layers as if they read one, too."""
    first = p['first_filter']
    filters = [first + i * (t.n_layers - first) // p['filter_layers'] for i in range(p['filter_layers'])]
    return max((f for f in filters if f <= layer), default=first)


def omnikv(t: Trace, p: dict) -> Log:
    log, host = Log(), p['place'] == 'host' and p['budget'] < t.prompt + t.steps
    for layer in sorted(t.keys):
        source, held = filter_of(t, p, layer), Lru(p['page_cache'])
        for head in range(t.n_kv):
            log.add(layer, -1, head, [] if host else range(t.prompt))
        for step in range(t.steps):
            rows = []
            for head in range(t.n_kv):
                logits = t.q(source, head, t.prompt + step) @ t.keys[source][head][:t.prompt].T / np.sqrt(t.d)
                rows.append(softmax(logits) if p['group'] == 'max_weights' else logits)
            ends = {**p, 'recent': max(0, p['recent'] - step - 1)}
            chosen = best(always(np.concatenate(rows).max(axis=0), ends, t.prompt), p['budget'])
            fetched, gone = held.use(chosen, step)
            for head in range(t.n_kv):
                log.add(layer, step, head, chosen + list(range(t.prompt, t.prompt + step + 1)), fetched=fetched if host else [],
                        evicted=gone if host else [])
    return log


def retroinfer(t: Trace, p: dict) -> Log:
    """RetroInfer with one cluster per key or per segment, so that nothing is random."""
    assert p['cluster_tokens'] in (1, p['segment'])
    log = Log()
    first, last = p['sink'], max(p['sink'], t.prompt - p['recent'])
    clusters = [range(i, min(last, i + p['cluster_tokens'])) for i in range(first, last, p['cluster_tokens'])]
    steady = [i for i in range(t.prompt) if i < first or i >= last]
    count = max(1, round(p['retrieved'] * len(clusters)))
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            keys, held = t.keys[layer][head], Lru(round(p['cache'] * len(clusters)))
            centroids = np.array([keys[list(c)].mean(axis=0) for c in clusters]).reshape(-1, t.d)
            log.add(layer, -1, head, steady)
            for step in range(t.steps):
                scores = softmax(t.q(layer, head, t.prompt + step) @ centroids.T / np.sqrt(t.d)).sum(axis=0) if clusters else []
                chosen = best(scores, count)
                fetched, gone = held.use(chosen, step)
                spread = lambda some: [i for c in some for i in clusters[c]]
                generated = list(range(t.prompt, t.prompt + step + 1))
                log.add(layer, step, head, steady + generated + spread(chosen), fetched=spread(fetched), evicted=spread(gone))
    return log
