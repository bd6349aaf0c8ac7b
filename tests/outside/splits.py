"""Policies that split heads into full and streaming heads, and the head scores that they need."""

from pathlib import Path

import numpy as np

from parts import Log
from traces import Trace


def write_profile(path: Path, t: Trace, scores: dict, errors) -> None:
    """Writes a head profile. scores: kind -> [n_layers, n_q]; errors: [n_layers]."""
    lines = ['format: kvcast-profile/1', f'n_layers: {t.n_layers}', f'n_q_heads: {t.n_q}', f'n_kv_heads: {t.n_kv}', 'head_scores:']
    for kind, rows in scores.items():
        lines += [f'  {kind}:', *(f'    - {{layer: {i}, scores: [{", ".join(map(repr, map(float, row)))}]}}' for i, row in enumerate(rows))]
    lines += ['layer_errors:', *(f'  - {{layer: {i}, error: {float(e)!r}}}' for i, e in enumerate(errors))]
    Path(path).write_text('\n'.join(lines) + '\n')


def streaming_lines(t: Trace, full: set, sink: int, recent: int) -> Log:
    """Logs streaming selections. full: the (layer, KV head) pairs that keep everything."""
    log = Log()
    for layer in sorted(t.keys):
        for head in range(t.n_kv):
            for step in range(-1, t.steps):
                length = t.prompt + step + 1
                stays = [i for i in range(length) if (layer, head) in full or i < sink or i >= length - recent]
                log.add(layer, step, head, stays)
    return log


def highest(values: dict, count: int) -> set:
    """Returns the `count` highest of (layer, head) -> score; ties go to the lower layer, then to the lower head."""
    return set(sorted(values, key=lambda at: (-values[at], at))[:count])


def duo_attention(t: Trace, p: dict, retrieval: np.ndarray) -> Log:
    means = {(i, h): retrieval[i][h * t.group:(h + 1) * t.group].mean() for i in range(t.n_layers) for h in range(t.n_kv)}
    sink, recent, total = p['sink'], p['recent'], t.prompt + t.steps
    streaming = min(total, sink + recent)
    if p['threshold'] != 'none':
        full = {at for at, score in means.items() if score >= p['threshold']}
    elif p['budget'] != 'none' and p['budget'] >= total:
        full = set(means)
    elif p['budget'] != 'none' and p['budget'] > streaming:
        full = highest(means, len(means) * (p['budget'] - streaming) // (total - streaming))
    elif p['budget'] != 'none':  # all heads stream within it; a fifth of a small budget is the sink
        full, sink = set(), p['budget'] // 5 if p['budget'] <= 2 * sink else sink
        recent = p['budget'] - sink
    else:
        full = highest(means, len(means) - int(p['sparsity'] * len(means) + 0.5))
    return streaming_lines(t, full, sink, recent)


def razor_attention(t: Trace, p: dict, echo: np.ndarray, induction: np.ndarray) -> Log:
    def top(scores, share):
        values = {(i, h): scores[i][h * t.group:(h + 1) * t.group].max() for i in range(t.n_layers) for h in range(t.n_kv)}
        return highest(values, int(np.ceil(share * len(values) - 1e-12)))
    full = top(echo, p['echo_share']) | top(induction, p['induction_share'])
    return streaming_lines(t, full, p['sink'], max(p['least_buffer'], int(t.prompt / p['divisor'])))
