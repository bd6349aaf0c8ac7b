"""Building blocks shared by the selections of several policies: plain and slow, in double precision."""

import numpy as np

NEAR = 2e-6  # relative distance of two scores below which single precision may rank them differently


class Closeness:
    """The smallest relative gap, ties excluded, of all rankings so far: it limits comparisons with other arithmetic."""
    smallest = np.inf

    ties_hold = True  # whether equal numbers are equal in any arithmetic

    @classmethod
    def reset(cls, ties_hold: bool) -> None:
        cls.smallest, cls.ties_hold = np.inf, ties_hold

    @classmethod
    def see_tie(cls, same: bool) -> None:
        if not (same and cls.ties_hold):
            cls.smallest = 0

    @classmethod
    def see(cls, kept: float, left: float) -> None:
        if kept != left and np.isfinite(kept) and np.isfinite(left):
            cls.smallest = min(cls.smallest, abs(kept - left) / max(abs(kept), abs(left)))

    @classmethod
    def sure(cls) -> bool:
        return cls.smallest > NEAR


def best(scores, count: int) -> list:
    """Returns the indices of the `count` highest scores, sorted by index; ties go to the lower index."""
    exact, scores = np.asarray(scores, dtype=float), settle(scores)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    count = max(0, min(int(count), len(scores)))
    if 0 < count < len(scores):
        last, next_one = order[count - 1], order[count]
        if scores[last] != scores[next_one]:
            Closeness.see(scores[last], scores[next_one])
        elif np.isfinite(scores[last]):
            Closeness.see_tie(exact[last] == exact[next_one])
    return sorted(order[:count])


def always(scores, p: dict, length: int, size: int = 1) -> np.ndarray:
    """Raises the scores of units of `size` of `length` tokens that hold one of the first `sink` or the last `recent` tokens."""
    first = np.arange(len(scores)) * size
    held = (first < p['sink']) | (np.minimum(first + size, length) > length - p['recent'])
    return np.where(held, np.inf, scores)


def settle(scores) -> np.ndarray:
    """Makes scores equal that differ by less than 1e-12: such differences are rounding of sums in another order."""
    scores = np.asarray(scores, dtype=float)
    out = scores.copy()
    order = np.argsort(scores, kind='stable')
    for before, here in zip(order, order[1:]):
        if np.isfinite(scores[here]) and scores[here] - scores[before] <= 1e-12 * abs(scores[here]):
            out[here] = out[before]
    return out


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last axis; −inf is left out."""
    logits = logits - np.max(logits, axis=-1, keepdims=True)
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


def causal_weights(q: np.ndarray, first: int, keys: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Returns softmax weights [group, rows, tokens] of queries at positions first, first + 1, ... over keys at positions at."""
    logits = np.einsum('grd,td->grt', q, keys) / np.sqrt(q.shape[-1])
    rows = first + np.arange(q.shape[1])
    return softmax(np.where(at[None, None, :] <= rows[None, :, None], logits, -np.inf))


REDUCE = {'sum': lambda x: x.sum(axis=0), 'mean': lambda x: x.mean(axis=0), 'max': lambda x: x.max(axis=0)}


def reduced(group: str, q: np.ndarray, score, scale: float) -> np.ndarray:
    """Returns one score per candidate for a group of query heads. score(q row) gives raw scores; weights are the softmax of
    these times scale."""
    how, _, what = group.partition('_')
    if what == 'query':
        return score(REDUCE[how](q))
    rows = np.stack([score(row) for row in q])
    return REDUCE[how](softmax(rows * scale) if what == 'weights' else rows)


def pooled(scores: np.ndarray, kind: str, kernel: int) -> np.ndarray:
    half = kernel // 2
    out = np.empty(len(scores))
    for i in range(len(scores)):
        near = scores[max(0, i - half):i + half + 1]
        out[i] = near.max() if kind == 'max' else near.sum() / kernel
    return out


def float8(fraction: int) -> np.ndarray:
    """Returns the finite non-negative numbers of an 8-bit format with this many fraction bits, ordered by code."""
    bias, last = (7, 0x7e) if fraction == 3 else (15, 0x7b)
    numbers = []
    for code in range(last + 1):
        exponent, part = code >> fraction, (code & (1 << fraction) - 1) / (1 << fraction)
        numbers.append((1 + part) * 2.0 ** (exponent - bias) if exponent else part * 2.0 ** (1 - bias))
    return np.array(numbers)


FLOAT8 = {'fp8_e4m3': float8(3), 'fp8_e5m2': float8(2)}


def stored(keys: np.ndarray, how: str) -> np.ndarray:
    """Rounds keys as page summaries store them: to the nearest number of the format, and ties to the even code."""
    if how == 'cache':
        return keys
    numbers, size = FLOAT8[how], np.abs(keys)
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    down, up = size - numbers[above - 1], numbers[above] - size
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    return np.copysign(numbers[code], keys)


def page_bounds(keys: np.ndarray, page: int) -> tuple:
    """Returns (minima, maxima), [pages, d], of pages of consecutive tokens; the last page may be partial."""
    starts = range(0, len(keys), page)
    return (np.array([keys[i:i + page].min(axis=0) for i in starts]), np.array([keys[i:i + page].max(axis=0) for i in starts]))


def bound_scores(q: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.maximum(q * low, q * high).sum(axis=-1)


class Log:
    """The lines that `--selections` writes."""

    def __init__(self):
        self.lines = []
        self.outputs = {}  # (layer, step, query head) -> attention output, for policies that modify held keys and values

    def add(self, layer, step, head, attended, *, kind='kv_head', evicted=None, fetched=None):
        """Adds a line; None: the method does not state it."""
        self.lines.append({'layer': layer, 'step': step, kind: head, 'attended': sorted(map(int, attended)),
                           'fetched': None if fetched is None else sorted(map(int, fetched)),
                           'evicted': None if evicted is None else sorted(map(int, evicted))})
