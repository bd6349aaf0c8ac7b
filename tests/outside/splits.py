"""Policies that split heads into those that keep everything and those that stream; the scores of heads that they need."""

from pathlib import Path

import numpy as np

from parts import Log
from traces import Trace


def write_profile(path: Path, t: Trace, scores: dict, errors) -> None:
    """scores: kind -> [n_layers, n_q]; errors: [n_layers]."""
    lines = ['format: kvcast-profile/1', f'n_layers: {t.n_layers}', f'n_q_heads: {t.n_q}', f'n_kv_heads: {t.n_kv}', 'head_scores:']
    for kind, rows in scores.items():
        lines += [f'  {kind}:', *(f'    - {{layer: {i}, scores: [{", ".join(map(repr, map(float, row)))}]}}' for i, row in enumerate(rows))]
    lines += ['layer_errors:', *(f'  - {{layer: {i}, error: {float(e)!r}}}' for i, e in enumerate(errors))]
    Path(path).write_text('\n'.join(lines) + '\n')


def streaming_lines(t: Trace, full: set, sink: int, recent: int) -> Log:
    """full: (layer, KV head) that keep everything."""
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            for step in range(-1, t.steps):
                length = t.prompt + step + 1
                stays = [i for i in range(length) if (layer, head) in full or i < sink or i >= length - recent]
                log.add(layer, step, head, stays)
    return log


def highest(values: dict, count: int) -> set:
    """Of (layer, head) -> score; ties: the lower layer, then the lower head."""
    return set(sorted(values, key=lambda at: (-values[at], at))[:count])


def duo_attention(t: Trace, p: dict, retrieval: np.ndarray) -> Log:
    means = {(i, h): retrieval[i][h * t.group:(h + 1) * t.group].mean() for i in range(t.n_layers) for h in range(t.n_kv)}
    if p['threshold'] != 'none':
        full = {at for at, score in means.items() if score >= p['threshold']}
    else:
        full = highest(means, len(means) - int(p['sparsity'] * len(means) + 0.5))
    return streaming_lines(t, full, p['sink'], p['recent'])


def razor_attention(t: Trace, p: dict, echo: np.ndarray, induction: np.ndarray) -> Log:
    def top(scores, share):
        values = {(i, h): scores[i][h * t.group:(h + 1) * t.group].max() for i in range(t.n_layers) for h in range(t.n_kv)}
        return highest(values, int(np.ceil(share * len(values) - 1e-12)))
    full = top(echo, p['echo_share']) | top(induction, p['induction_share'])
    return streaming_lines(t, full, p['sink'], max(p['least_buffer'], int(t.prompt / p['divisor'])))
