"""Compares true accuracy with kvcast's proxies: do they rank policies as the model does? Needs only the standard library.

python3 -m kvcast_train.compare TABLE.csv PROXIES.csv [--score COLUMN] prints JSON. For each proxy:
  spearman, kendall   over policy × budget, with accuracy and proxy averaged over tasks at each context
  by_task             the median of Spearman's coefficient within a task and context
  mean_error          points between the true accuracy of a row and that read off a monotone curve (isotonic regression) through
                      the rows of all other policies: the best that a score model of this proxy can achieve
--score names a column that is a predicted accuracy in points; its mean_error is that of the prediction itself."""

import argparse
import json
import statistics
import sys
from bisect import bisect_left
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

from .proxies import KEY, read_rows

PROXIES = ("recall_mass_mean", "recall_mass_p10", "output_error_mean", "topk_overlap_mean")


def ranks(values: Sequence[float]) -> list[float]:
    """Returns ranks from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    out, i = [0.0] * len(values), 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in order[i: j + 1]:
            out[k] = (i + j) / 2 + 1
        i = j + 1
    return out


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Returns Pearson's coefficient, or None if x or y is constant."""
    mx, my = statistics.fmean(x), statistics.fmean(y)
    sxy = sum((a - mx) * (b - my) for a, b in zip(x, y))
    sxx, syy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
    return sxy / (sxx * syy) ** 0.5 if sxx > 0 and syy > 0 else None


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    return pearson(ranks(x), ranks(y)) if len(x) > 1 else None


def kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Tau-b."""
    agree = ties_x = ties_y = 0
    pairs = len(x) * (len(x) - 1) // 2
    for i in range(len(x)):
        for j in range(i):
            a, b = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
            agree += a * b
            ties_x += a == 0
            ties_y += b == 0
    scale = ((pairs - ties_x) * (pairs - ties_y)) ** 0.5
    return agree / scale if scale > 0 else None


def isotonic(x: Sequence[float], y: Sequence[float]) -> Callable[[float], float]:
    """Returns the non-decreasing curve nearest to the points (pool adjacent violators), linear between and constant beyond
    them."""
    blocks: list[list[float]] = []  # sum of y, number, mean of x
    for a in sorted(set(x)):
        at = [value for place, value in zip(x, y) if place == a]
        blocks.append([sum(at), len(at), a])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            total, number, place = blocks.pop()
            before = blocks[-1]
            before[2] = (before[2] * before[1] + place * number) / (before[1] + number)
            before[0] += total
            before[1] += number
    places, levels = [b[2] for b in blocks], [b[0] / b[1] for b in blocks]

    def curve(a: float) -> float:
        i = bisect_left(places, a)
        if i == 0 or i == len(places):
            return levels[min(i, len(places) - 1)]
        share = (a - places[i - 1]) / (places[i] - places[i - 1])
        return levels[i - 1] + share * (levels[i] - levels[i - 1])

    return curve


def means(rows: Iterable[dict[str, str]], keys: Sequence[str], column: str) -> dict[tuple[str, ...], float]:
    """Returns the means of a column by key; rows without a value are left out."""
    gathered: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if row.get(column, "") not in ("", None):
            gathered.setdefault(tuple(row[key] for key in keys), []).append(float(row[column]))
    return {key: statistics.fmean(values) for key, values in gathered.items()}


def link_error(cells: Sequence[tuple[str, float, float]]) -> float | None:
    """Returns the mean distance of true accuracies to the curve through all other policies. cells: policy, proxy, accuracy."""
    errors = []
    direction = spearman([p for _, p, _ in cells], [a for _, _, a in cells])
    sign = -1.0 if direction is not None and direction < 0 else 1.0
    for policy in {name for name, _, _ in cells}:
        others = [(sign * p, a) for name, p, a in cells if name != policy]
        if not others:
            return None
        curve = isotonic([p for p, _ in others], [a for _, a in others])
        errors += [abs(curve(sign * p) - a) for name, p, a in cells if name == policy]
    return statistics.fmean(errors) if errors else None


def compare(table: list[dict[str, str]], proxies: list[dict[str, str]], columns: Sequence[str],
            score: str | None) -> dict[str, Any]:
    measured = [row for row in table if not row["refused"]]
    truth = means(measured, KEY, "accuracy")
    out: dict[str, Any] = {"rows": len(truth), "refused": len(table) - len(measured), "proxies": {}}
    for column in [*columns, *([score] if score else [])]:
        proxy = means(proxies, KEY, column)
        cells = sorted(key for key in truth if key in proxy)
        if not cells:
            continue
        found: dict[str, Any] = {"cells": len(cells)}
        by_setting: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        by_task: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        for key in cells:
            by_setting.setdefault(key[1:], []).append((proxy[key], truth[key]))
            by_task.setdefault(key[:2], []).append((proxy[key], truth[key]))
        pairs = [tuple(map(statistics.fmean, zip(*both))) for both in by_setting.values()]
        found["spearman"] = spearman(*zip(*pairs))
        found["kendall"] = kendall(*zip(*pairs))
        within = [r for r in (spearman(*zip(*both)) for both in by_task.values()) if r is not None]
        found["by_task"] = statistics.median(within) if within else None
        if column == score:
            found["mean_error"] = statistics.fmean(abs(proxy[key] - truth[key]) for key in cells)
        else:
            found["mean_error"] = link_error([(key[2], proxy[key], truth[key]) for key in cells])
        out["proxies"][column] = found
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="kvcast_train.compare", description="Compares true accuracy with kvcast's proxies.")
    p.add_argument("table", type=Path)
    p.add_argument("proxies", type=Path)
    p.add_argument("--proxy", action="append", help="a column of PROXIES.csv; may be repeated")
    p.add_argument("--score", help="a column that is a predicted accuracy in points")
    args = p.parse_args(arguments)
    found = compare(read_rows(args.table), read_rows(args.proxies), args.proxy or PROXIES, args.score)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
