"""Policies in Python: what they select on a trace is recorded, and replayed and costed by the policy `replayed`."""

import copy
import json

try:
    import numpy as np
except ImportError:  # only arrays need it
    np = None

from ._errors import Error


class Policy:
    """A KV-cache policy as two functions on arrays. Derive from it, and give an object to kvcast.run or kvcast.replay.

    A copy of the object sees each layer, so that what prefill() keeps in `self` belongs to one layer.

    The attributes below state the costs of choosing; attention, and copies of what is fetched from host memory, cost what the
    selections say.
    """

    index_bytes = 0    # bytes per cached token and KV head that each step reads to choose
    index_tokens = 1   # tokens per entry of that index
    kernels = 0        # further kernels per layer and step
    kernel_bytes = 0   # bytes per cached token and KV head that these read or write, all together
    window = 0         # last prompt queries that prefill() is given; 0: all that the trace has
    growth = 'recorded'  # tokens that each generated token adds to what a later step attends to

    def prefill(self, keys, values, queries):
        """Called once a layer, after the prompt.

        keys, values: [kv_heads, prompt_tokens, head_dim]; queries: [q_heads, window, head_dim], the last ones of the prompt.
        Returns the positions that stay resident, a list per KV head (or per query head); None: all.
        """

    def step(self, t, keys, values, queries):
        """Called for each decode step.

        keys, values: [kv_heads, n, head_dim], the current token being the last; queries: [q_heads, head_dim].
        Returns the positions to attend to, a list per KV head (or per query head); or a dict with the lists `attended`, `fetched`
        (copied from host memory) and `evicted`.
        """
        raise NotImplementedError(f'{type(self).__name__} has no step(t, keys, values, queries)')

    def __repr__(self):
        return type(self).__name__


def _window(policy, trace, layer):
    prompt = trace.queries(layer)[:, :len(trace.query_positions) - trace.decode_steps]
    if policy.window > prompt.shape[1]:
        raise Error(f'{policy}: a window of {policy.window} prompt queries, the trace has {prompt.shape[1]}')
    return prompt[:, -policy.window:] if policy.window else prompt


def _lists(policy, what, lists, heads, limit):
    """Ascending positions per head."""
    if not hasattr(lists, '__len__'):
        raise Error(f'{policy}: {what} is {lists!r}, expected a list of positions for each head')
    if len(lists) not in heads.values():
        known = ' or '.join(f'{count} ({name}s)' for name, count in heads.items())
        raise Error(f'{policy}: {what} has {len(lists)} lists, expected one a head: {known}')
    arrays = [np.asarray(one) for one in lists]
    for one in arrays:
        if one.size and not np.issubdtype(one.dtype, np.integer):
            hint = '; np.flatnonzero gives the positions of a mask' if one.dtype == bool else ''
            raise Error(f'{policy}: {what} has values of type {one.dtype}, expected positions{hint}')
    sorted_lists = [np.unique(one.astype(np.int64)) for one in arrays]
    for one in sorted_lists:
        if one.size and (one[0] < 0 or one[-1] >= limit):
            raise Error(f'{policy}: {what} names position {one[0] if one[0] < 0 else one[-1]}, of 0 to {limit - 1}')
    return sorted_lists


class _Held:
    """Positions that are there, [heads, positions]: a step may attend to these, and to what it fetches."""

    def __init__(self, policy, resident, prompt, positions):
        self.policy, self.there = policy, np.zeros((len(resident), positions), dtype=bool)
        for row, one in zip(self.there, resident):
            row[one] = True
        self.there[:, prompt:] = True  # tokens of the answer, once they exist

    def use(self, t, lists):
        if len(lists['attended']) != len(self.there):
            raise Error(f'{self.policy}: step {t} selects for {len(lists["attended"])} heads, prefill() for {len(self.there)}')
        for row, fetched in zip(self.there, lists.get('fetched', ())):
            row[fetched] = True
        for head, attended in enumerate(lists['attended']):
            gone = attended[~self.there[head, attended]]
            if gone.size:
                raise Error(f'{self.policy}: step {t} attends to position {gone[0]} in head {head}, which prefill() or an earlier '
                            'step dropped; `fetched` lists what comes back from host memory')
        for row, evicted in zip(self.there, lists.get('evicted', ())):
            row[evicted] = False


def _layer(policy, trace, layer, heads):
    """Yields the step and the lists of each head, as the policy selects in one layer."""
    keys, values, queries = trace.keys(layer), trace.values(layer), trace.queries(layer)
    prompt, steps = trace.prompt_tokens, trace.decode_steps
    mine = copy.deepcopy(policy)
    resident = mine.prefill(keys[:, :prompt], values[:, :prompt], _window(policy, trace, layer))
    first = None
    for t in range(steps):
        n = prompt + t + 1
        chosen = mine.step(t, keys[:, :n], values[:, :n], queries[:, len(trace.query_positions) - steps + t])
        chosen = chosen if isinstance(chosen, dict) else {'attended': chosen}
        lists = {what: _lists(policy, f'{what} of step {t}', one, heads, n) for what, one in chosen.items()}
        if 'attended' not in lists or set(lists) - {'attended', 'fetched', 'evicted'}:
            raise Error(f'{policy}: step() returned {sorted(lists)}; known: attended (needed), fetched, evicted')
        if first is None:
            first = len(lists['attended'])
            if resident is None:
                resident = [np.arange(prompt)] * first
            resident = _lists(policy, 'prefill()', resident, heads, prompt)
            held = _Held(policy, resident, prompt, prompt + steps)
            yield -1, {'attended': resident}
        held.use(t, lists)
        yield t, lists


def record(policy, trace, path, identity):
    """Writes what the policy selects on the trace, and returns the policy `replayed` of the record, as a dict."""
    heads = {'kv_head': trace.metadata['n_kv_heads'], 'q_head': trace.metadata['n_q_heads']}
    with open(path, 'w', encoding='utf-8') as out:
        named = {'trace': identity}  # by the first line
        for layer in trace.layers:
            for step, lists in _layer(policy, trace, layer, heads):
                kind = 'kv_head' if len(lists['attended']) == heads['kv_head'] else 'q_head'
                for head in range(len(lists['attended'])):
                    line = {'layer': layer, 'step': step, kind: head}
                    line.update((what, one[head].tolist()) for what, one in lists.items())
                    out.write(json.dumps({**line, **named}) + '\n')
                    named = {}
    settings = {key: getattr(policy, key) for key in ('index_bytes', 'index_tokens', 'kernels', 'kernel_bytes', 'growth')}
    return {'name': 'replayed', 'selections': path, **settings}
