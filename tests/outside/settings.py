"""Random settings of every policy, within the range that kvcast accepts, and the oracle of each policy."""

import random

import numpy as np

import dimensions
import drop
import newer
import pages
import prompt
import splits
from traces import Trace

SCORES = ['sum_scores', 'mean_scores', 'max_scores']
WEIGHTS = ['sum_weights', 'mean_weights', 'max_weights']
QUERIES = ['mean_query', 'max_query']
FORMATS = ['cache', 'cache', 'fp8_e4m3', 'fp8_e5m2']


class Draw:
    """Draws settings. r: the random stream; t: the trace for which the settings are."""

    def __init__(self, r: random.Random, t: Trace):
        self.r, self.t = r, t
        self.one = lambda *these: r.choice(these)

    def budget(self, least: int = 1) -> int:
        small = lambda most: self.r.randint(least, max(least, most))
        prompt, total = self.t.prompt, self.t.prompt + self.t.steps
        edge = self.r.choice([prompt - 1, prompt, prompt + 1, total - 1, total, 2 * total])
        return max(least, self.r.choice([small(prompt), small(prompt // 3), small(prompt // 3), small(prompt // 3), edge]))

    def ends(self, budget: int) -> dict:
        """Draws sink and recent within a budget."""
        sink = self.one(0, 0, self.r.randint(0, budget))
        return {'sink': sink, 'recent': self.one(0, self.r.randint(0, budget - sink))}

    def block(self):
        return self.one('prompt', 'prompt', self.r.randint(1, self.t.prompt), self.r.randint(max(1, self.t.prompt // 4), self.t.prompt + 3))

    def page(self) -> int:
        return self.one(1, 2, 3, 4, 5, 8, 16)

    def window(self) -> dict:
        """Draws settings of the SnapKV family."""
        window = self.r.randint(1, max(1, min(24, self.t.prompt - 1)))
        sink, recent = self.one(0, 0, self.r.randint(0, 9)), self.one(0, 0, self.r.randint(0, 30))
        return {'window': window, 'budget': self.budget(sink + max(window, recent)), 'sink': sink, 'recent': recent,
                'pool': self.one('max', 'avg'), 'pool_kernel': self.one(1, 3, 5, 7, 63), 'group': self.one(*WEIGHTS)}


def drop_settings(d: Draw) -> dict:
    b, pairs = d.budget(2), d.page()
    share = {'recent_fraction': d.one(0.1, 0.25, 0.5)}
    quarter = d.budget(12)
    return {
        'streaming_llm': {'budget': b, 'sink': d.r.randint(0, min(b, 4)), 'block': d.block()},
        'h2o': {'budget': b, **d.one({}, d.ends(b)), 'group': d.one(*WEIGHTS, 'per_head'), 'block': d.block(),
                **d.one({'decode_eviction': d.one(True, False)}, {'budget_grows': True})},
        'tova': {'budget': b, **d.ends(b), 'scope': d.one('layer', 'group'), 'block': d.block(), 'budget_grows': d.one(True, False)},
        'raas': {'budget': d.budget(pairs), 'page': pairs, 'sink': d.r.randint(0, 9), 'recent': d.r.randint(0, 9),
                 'alpha': d.one(1e-4, 0.01, 0.05, 0.2), 'group': d.one(*WEIGHTS)},
        'keydiff': {'anchor': d.one('mean', 'mean_raw', 'median', 'pairwise'), 'metric': d.one('cosine', 'dot', 'euclid'),
                    'block': d.block(), **d.one({'budget': b, 'budget_grows': d.one(True, False), **d.one(share, d.ends(b))}, {'share': d.one(0.2, 0.5, 0.9), 'interval': d.one(1, 3)})},
        'keyl2norm': {'budget': b, **d.ends(b), 'block': d.block(),
                      **d.one({'prune_after': d.one(0, d.t.prompt - 1, d.t.prompt, d.t.prompt + 1)}, {'decode_eviction': True, 'budget_grows': d.one(True, False)})},
        'd2o': {'budget': quarter, 'sink': d.one(0, 3), 'recent_share': d.one(0.5, 0.25), 'alpha': d.one(0.5, 0.3), 'beta': d.one(0.5, 0.7),
                'merge': d.one(True, False), **d.one({'layers': 'uniform', 'block': d.block()}, {'layers': 'adaptive'})},
    }


def prompt_settings(d: Draw) -> dict:
    snap, pyramid, ada, head, compress, cake = (d.window() for _ in range(6))
    half = (d.t.prompt + 1) // 2
    if d.t.prompt - half >= snap['window']:  # the first block has the queries of the window
        snap['block'] = d.one('prompt', half, d.r.randint(snap['window'], d.t.prompt), d.t.prompt + 3)
    for one in (compress, cake):
        del one['group']
    return {
        'snapkv': {**snap, 'group': snap['group'] if 'block' in snap else d.one(snap['group'], 'per_head'),
                   **d.one({'decode_eviction': d.one(False, True)}, {'decode_eviction': True, 'block': 'prompt', 'budget_grows': True})},
        'pyramidkv': {**pyramid, 'beta': d.one(20, 2, 3), 'schedule': d.one('whole', 'smooth')},
        'adakv': {**ada, 'floor': d.one(0.2, 0, 0.5, 1), 'normalise': d.one(True, False), 'variant': d.one('released', 'kvpress')},
        'headkv': {**head, 'beta': d.one(1.01, 1.5, 3), 'power': d.one(1, 2), 'base': d.one('without_window', 'with_window')},
        'compresskv': {**compress, 'pool': 'avg', 'retrieval_heads': d.one(1, 2, 4),
                       'ranked_by': d.one('semantic', 'retrieval'), 'layers': d.one('errors', 'uniform'),
                       'least_layer_budget': compress['window'], 'most_layer_factor': d.one(2, 3)},
        'cake': {**cake, 'layers': 'uniform', 'window': max(2, cake['window']), 'budget': max(2, cake['budget']), 'gamma': d.one(200, 0),
                 'block': d.one('prompt', max(2, cake['window'], half), d.t.prompt + 3),
                 **d.one({'decode_eviction': d.one(False, True)}, {'decode_eviction': True, 'block': 'prompt', 'budget_grows': True})},
    }


def page_settings(d: Draw) -> dict:
    p, sink, recent = d.page(), d.one(0, d.r.randint(0, 12)), d.one(0, d.r.randint(0, 20))
    q = max(2, p)
    convention = d.one('attended', 'attended', 'selected')
    inside = sink + recent if convention == 'attended' else 0
    held = {'sink': d.one(0, d.r.randint(0, p)), 'recent': d.one(0, 1)}
    quest = d.one({'budget': d.budget(2 * p), 'page': p, **held, 'force_last_page': d.one(False, True), 'group': d.one(*SCORES, *WEIGHTS, *QUERIES, 'per_head')},
                  {'budget': d.budget(2), 'budget_convention': 'traffic', 'group': d.one(*SCORES, *WEIGHTS, *QUERIES)})
    quest['summary_format'] = d.one(*FORMATS)
    return {
        'full': {},
        'exact_topk': {'budget': d.budget(p + 1), **held, 'group': d.one('per_head', *SCORES, *WEIGHTS, *QUERIES)},
        'quest': quest,
        'freekv': {'budget': d.budget(p) + inside, 'page': p, 'sink': sink, 'recent': recent, 'tau': d.one(0.8, 0.9, 0.5, 0),
                   'speculation': d.one(True, True, False), 'correction': d.one(True, True, False), 'summary': d.one('min_max', 'cuboid_mean'),
                   'group': d.one(*SCORES, *WEIGHTS, *QUERIES), 'budget_convention': convention},
        'arkvale': {'budget': d.budget(6 * p), 'page': p, 'topk': d.one(32, 5, 6), 'sink': d.one(0, p, 2 * p), 'recent': d.one(0, p, 2 * p),
                    'selection_heads': d.one('layer', 'kv_head'), 'summary': d.one('cuboid_mean', 'min_max'),
                    'group': d.one('mean_scores', 'max_scores')},
        'shadowkv': {'budget': d.budget(q), 'page': q, 'recent': d.one(32, 0, d.r.randint(0, 20)), 'outliers': d.one(0, 3, 48), 'rank': 4,
                     'group': d.one(*SCORES, *WEIGHTS)},
        'squeezed_attention': {'centroid_share': 1, 'window': d.r.randint(1, d.t.prompt - 1), 'sparsity': d.one(0.5, 0.7, 0.9)},
    }


def other_settings(d: Draw) -> dict:
    b = d.budget(2)
    planned = lambda: {'max_new_tokens': d.one('decode_steps', 'decode_steps', 0, 5)}
    estimate = lambda: {'group': d.one(*SCORES, *WEIGHTS), 'dims_rounding': d.one('down', 'nearest'), 'norm_correction': d.one(True, False),
                        'zero_sign': d.one('min', 'max'), 'summary_format': d.one(*FORMATS), **planned()}
    static = {'sink': d.r.randint(0, 9), 'recent': d.r.randint(1, 20)}
    small = d.t.prompt // 4
    rocket = {'budget': max(2, d.t.prompt // d.one(2, 3, 5)), 'window': min(4, max(1, small)), 'pool': d.one('max', 'avg'),
              'pool_kernel': d.one(1, 7, 63), 'eviction_group': d.one(*WEIGHTS), 'split_factor': d.one('adaptive', 0, 0.3, 0.5, 1), **estimate()}
    dims = d.one({'dims': d.r.randint(1, d.t.d + 3)}, {'budget_convention': 'traffic'})
    return {
        'sparq': {'budget': b, **dims, 'sink': d.one(0, d.r.randint(0, b // 4)), 'recent': d.r.randint(0, b // 4), 'group': d.one(*SCORES, *WEIGHTS)},
        'loki': {'budget': b, 'dims': d.r.randint(1, d.t.d // 2), **d.ends(b), 'group': d.one(*SCORES, *WEIGHTS, 'per_head')},
        'hsa': {'budget': b, **estimate()},
        'rocketkv': rocket,
        'rocketkv_mt': rocket,
        'infinigen': {'skew': False, 'sink': d.one(0, 0, d.r.randint(0, 9)), 'recent': d.one(0, 0, d.r.randint(0, 9)), 'alpha': d.one(4, 1, 0.2), 'partial_ratio': d.one(0.2, 0.5, 1), 'max_share': d.one(0.2, 0.5, 1)},
        'retrieval_attention': {'budget': d.budget(), **static, 'generated': d.one('index', 'gpu'), 'index': d.one('graph', 'flat')},
        'ctkvr': {'budget': d.budget(), **static, 'centroids': d.one('adaptive', d.r.randint(1, d.t.prompt)), 'recall_factor': d.one(2.5, 1, 2),
                  'retrieved_centroids': d.one(1, 2, 4), 'positions': d.one('last', 'first'), 'rerank': d.one(True, True, False),
                  'update': d.one(True, False), 'departed': d.one(True, False)},
    }


def split_settings(d: Draw) -> dict:
    return {
        'duo_attention': {**d.one({'sparsity': d.one(0, 0.5, 1)}, {'threshold': 0.2}, {'budget': d.budget()}),
                          'sink': d.r.randint(0, 5), 'recent': d.r.randint(1, 20)},
        'razor_attention': {'least_buffer': d.one(0, 10), 'divisor': d.one(5, 3.5), 'echo_share': d.one(0.01, 0.1), 'induction_share': d.one(0.14, 0.5)},
    }


def clusters(d: Draw) -> dict:
    """Draws settings with one cluster per key, unless equal keys would share one, or one per segment. Shares are whole numbers of
    clusters, because the rounding of others is not published, nor is the order in which clusters last read at the same step leave the
    cache."""
    size, sink, recent = d.page(), d.r.randint(0, 4), d.r.randint(0, 9)
    tokens = d.one(1, size) if newer.distinct(d.t) else size
    count = max(1, -(-(d.t.prompt - sink - recent) // tokens))
    read = d.one(1, d.r.randint(1, max(1, count // 3)))
    slots = d.r.randint(1, count) if read == 1 else d.one(read, count)
    shares = {'retrieved': read / count, 'cache': slots / count}
    return {'sink': sink, 'recent': recent, 'segment': size, 'cluster_tokens': tokens, **shares}


def newer_settings(d: Draw) -> dict:
    b, p, sink, buffer = d.budget(2), d.page(), d.r.randint(0, 4), d.r.randint(1, 8)
    window = d.r.randint(1, max(1, min(8, d.t.prompt - 1)))
    expected, half = max(b, sink + 1), d.t.prompt // 2
    kernel = d.one(1, 2, 4, 7)
    recent = d.r.randint(0, 3 * p)
    p2 = max(2, p)
    near, chunk, lag = d.window(), d.one(1, 2, 5, 8), d.one(1, 2, 5)
    zip_recent, lag_recent = d.one(0, d.r.randint(0, d.t.prompt // 2)), d.one(0, d.r.randint(0, 9))
    near['window'], chunk = max(near['window'], 2), min(chunk, max(near['window'], 2) + 1)
    ends = near['sink'] + max(near['window'], near['recent'])
    certain = -(-sink // p) + -(-recent // p) + 2
    few = {'sink': d.one(0, 0, d.r.randint(0, p2)), 'recent': d.one(0, 0, d.r.randint(0, p2))}
    double = {'budget': b, **d.ends(b), 'channels': d.r.randint(1, d.t.d), 'label_bits': d.one(4, 2, 8, 16), 'window': d.r.randint(1, d.t.prompt),
              'calibrate_on': d.one('qk', 'q', 'k'), 'group': d.one('per_head', *SCORES, *WEIGHTS)}
    quest = {'budget': d.budget(2 * p), 'page': p, 'sink': 0, 'recent': 0, 'force_last_page': d.one(False, True),
             'group': d.one(*SCORES), 'budget_convention': 'attended', 'summary_format': 'cache'}
    selectors = {'quest': quest, 'double_sparsity': double, 'exact_topk': page_settings(d)['exact_topk'], 'full': {}}
    selector = d.one(*selectors)
    return {
        'expected_attention': {'budget': expected + zip_recent, 'sink': sink, 'recent': zip_recent, 'future': d.one(512, 1, 7),
                               'queries': d.one('prompt', d.r.randint(1, d.t.prompt)), 'covariance': d.one(True, False),
                               'value_norm': d.one(True, False), 'epsilon': d.one(0, 0.01)},
        'kvzap': {'threshold': d.one(-1, -2, -3.5), 'sink': sink, 'window': d.r.randint(0, d.t.prompt), 'decoding': d.one(True, False),
                  'chunk': d.one(2048, d.r.randint(1, d.t.prompt))},
        'kvzip': {'budget': expected + zip_recent, 'sink': sink, 'recent': zip_recent, 'chunk': d.one(2048, d.r.randint(1, d.t.prompt)), 'scope': d.one('layer', 'head')},
        'rkv': {'budget': d.budget(sink + window + 2), 'sink': sink, 'recent': d.one(0, window + 1), 'buffer': buffer, 'window': window, 'pool_kernel': d.one(1, 3, 7, 63),
                'lambda': d.one(0.07, 0.5, 0, 1), 'similarity': d.one(0.5, 0.8, 0.1),
                'block': 'prompt' if half < window else d.one('prompt', d.t.prompt - half, d.t.prompt + 3)},
        'skipkv': {'budget': d.budget(sink + zip_recent + 1), 'sink': sink, 'recent': zip_recent, 'buffer': buffer, 'compared': d.r.randint(0, 20),
                   'passage': d.r.randint(1, 6), 'alpha': d.one(0.1, 0, 2), 'similarity': d.one(0.8, 0, 0.3), 'passage_similarity': d.one(0.95, 0, 0.3),
                   'block': d.block()},
        'chunkkv': {**near, 'chunk': chunk, 'budget': d.budget(ends + 3 * chunk)},
        'lagkv': {'budget': d.budget(sink + lag_recent + 2 * lag - 1), 'sink': sink, 'recent': lag_recent, 'lag': lag},
        'criticalkv': {**near, 'budget': d.budget(2 * ends), 'first_stage': d.one(0.5, 0.75, 1), 'epsilon': d.one(1e-4, 0, 0.1)},
        'infllm_v2': {'budget': d.budget(certain * p), 'page': p, 'sink': sink, 'recent': recent, 'kernel': kernel,
                      'stride': d.r.randint(1, kernel), 'dense_below': d.one(0, 0, d.t.prompt)},
        'nsa': {'budget': d.budget((certain + 1) * p), 'page': p, 'sink': sink, 'recent': recent, 'kernel': kernel,
                'stride': d.r.randint(1, kernel), 'window': d.one(0, d.r.randint(1, 3 * p))},
        'seer_attention': {'budget': d.budget(p), 'page': p, **few, 'threshold': d.one(0, 0, 0.05, 0.2)},
        'twilight': {'p': d.one(0.85, 0.5, 0.95, 0), 'bits': d.one(4, 2, 8), 'selector': {'name': selector, **selectors[selector]}},
        'specprefill': {'budget': b, 'chunk': d.one(1, 2, 5, 32), 'look_ahead': d.one(1, 3, 8), 'pool_kernel': d.one(1, 3, 13)},
        'gsa': {'budget': p * (certain + 1 + d.r.randint(0, d.t.prompt // p)), 'page': p, 'sink': sink, 'recent': recent,
                'scope': d.one('layer', 'head'), 'dense_below': d.one(0, d.t.prompt)},
        'blasst': {'scale_decode': d.t.prompt * d.one(0.01, 0.1, 0.3, 0.7), 'tile': d.page(), 'scale_prefill': 0},
        'dsa': {'budget': b, **d.ends(b)},
        'msa': {'budget': p2 * d.r.randint(1, max(1, (d.t.prompt + 2) // p2)), 'block': p2, **few},
        'qsa': {'budget': p2 * d.r.randint(1, max(1, (d.t.prompt + 2) // p2)), 'block': p2, **few},
        'hisparse': {'budget': b, **d.ends(b), 'spare': d.one(1, d.r.randint(1, 20))},
        'double_sparsity': double,
        'omnikv': {'budget': b, **d.ends(b), 'first_filter': d.r.randint(0, d.t.n_layers - 1), 'filter_layers': d.r.randint(1, 3),
                   'group': d.one('max_weights', 'max_scores'), **d.one({'place': 'gpu'}, {'page_cache': d.one(0, d.r.randint(1, 30))})},
        'retroinfer': clusters(d),
    }


def all_settings(r: random.Random, t: Trace) -> dict:
    d = Draw(r, t)
    rooms = [drop_settings, prompt_settings, page_settings, other_settings, split_settings, newer_settings]
    return {policy: settings for room in rooms for policy, settings in room(d).items()}


class Offline:
    """Scores of heads and layers that some policies read from a head profile."""

    def __init__(self, t: Trace, rng: np.random.Generator):
        self.scores = {kind: np.round(rng.random((t.n_layers, t.n_q)) ** 3, 4) for kind in ('semantic', 'retrieval', 'echo', 'induction')}
        self.errors = np.round(0.1 + rng.random(t.n_layers), 4)


def oracles(known: Offline) -> dict:
    s = known.scores
    plain = {name: getattr(room, name) for room, names in {
        drop: ['streaming_llm', 'h2o', 'tova', 'raas', 'keydiff', 'keyl2norm', 'd2o'],
        prompt: ['snapkv', 'pyramidkv', 'adakv', 'cake'],
        pages: ['full', 'exact_topk', 'quest', 'freekv', 'arkvale', 'shadowkv', 'squeezed_attention'],
        dimensions: ['sparq', 'loki', 'hsa', 'rocketkv', 'infinigen', 'retrieval_attention', 'ctkvr'],
        newer: ['expected_attention', 'kvzip', 'kvzap', 'chunkkv', 'lagkv', 'criticalkv', 'rkv', 'skipkv', 'infllm_v2', 'nsa', 'seer_attention', 'gsa', 'blasst', 'specprefill', 'dsa', 'msa', 'qsa',
                'hisparse', 'double_sparsity', 'omnikv', 'retroinfer']}.items() for name in names}
    selected = lambda t, p: plain[p['selector']['name']](t, p['selector'])
    return {**plain,
            'twilight': lambda t, p: newer.twilight(t, p, selected(t, p)),
            'rocketkv_mt': lambda t, p: dimensions.rocketkv(t, p, multi_turn=True),
            'headkv': lambda t, p: prompt.headkv(t, p, s['retrieval']),
            'compresskv': lambda t, p: prompt.compresskv(t, p, s[p['ranked_by']], known.errors / known.errors.sum()),
            'duo_attention': lambda t, p: splits.duo_attention(t, p, s['retrieval']),
            'razor_attention': lambda t, p: splits.razor_attention(t, p, s['echo'], s['induction'])}


NEEDS_PROFILE = ('headkv', 'compresskv', 'duo_attention', 'razor_attention')
# Policies whose estimates are scaled or rotated before they are summed: in single precision, equal sums of different numbers differ.
NO_COINCIDENCES = ('sparq', 'loki', 'hsa', 'rocketkv', 'rocketkv_mt', 'infinigen', 'arkvale', 'squeezed_attention', 'd2o', 'keydiff',
                   'shadowkv', 'expected_attention', 'kvzip', 'kvzap', 'chunkkv', 'lagkv', 'criticalkv', 'rkv', 'skipkv', 'double_sparsity', 'twilight',
                   'retroinfer', 'blasst', 'specprefill', 'nsa')
