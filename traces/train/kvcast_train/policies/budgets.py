"""Allocation of a budget over layers and heads, with the rounding of the released code."""

import math
from typing import Sequence


def pyramid(base: int, available: int, window: int, beta: int, layers: int) -> list[int]:
    """PyramidKV: decreases from the first layer in steps of whole tokens; uniform if the prompt is shorter than two budgets."""
    if available + window < 2 * base:
        return [base] * layers
    least = base // beta
    most = 2 * base - least
    if most >= available:
        most, least = available, 2 * base - available
    step = (most - least) // (layers - 1) if layers > 1 else 0
    return [most - layer * step for layer in range(layers)]


def importance(shares: Sequence[float], base: int, beta: float) -> list[float]:
    """HeadKV: every head puts ⌊base/beta⌋ tokens into a pool that is distributed by importance."""
    each = math.floor(base / beta)
    return [float(round(share * each * len(shares) + base - each)) for share in shares]


def preference(shares: Sequence[float], total: int, available: int) -> list[int]:
    """CAKE: distributes by preference, up to the available tokens; the rest goes evenly to layers with room."""
    out = [min(available, int(share * total)) for share in shares]
    left = total - sum(out)
    while left > 0 and any(b < available for b in out):
        each = max(left // sum(b < available for b in out), 1)
        for i, b in enumerate(out):
            given = min(available - b, each, left)
            out[i] += given
            left -= given
    return out


def error_aware(shares: Sequence[float], total: int, least: int, most: int) -> list[int]:
    """CompressKV, algorithm 1: distributes by error, between least and most; single tokens correct the sum."""
    rest = total - least * len(shares)
    out = [min(max(least + round(share * rest), least), most) for share in shares]
    while (left := total - sum(out)) != 0:
        open_layers = [i for i, b in enumerate(out) if (b < most if left > 0 else b > least)]
        if not open_layers:
            break
        if left > 0:
            out[max(open_layers, key=lambda i: (shares[i], -i))] += 1
        else:
            out[min(open_layers, key=lambda i: (shares[i], i))] -= 1
    return out
