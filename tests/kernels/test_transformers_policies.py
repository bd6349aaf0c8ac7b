"""Checks on the CPU that the policies of kernels/eager_policies.py attend to the tokens that their rules select, by comparison
with head-by-head computations; skipped without PyTorch."""
import math
import os
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(PROJECT, 'kernels'))
import eager_policies as policies  # noqa: E402

BATCH, HEADS, KV_HEADS, DIM = 2, 6, 2, 16
GROUP, SCALE = HEADS // KV_HEADS, DIM ** -0.5
torch.manual_seed(3)


def tensors(n, rows=1):
    return torch.randn(BATCH, HEADS, rows, DIM), torch.randn(BATCH, KV_HEADS, n, DIM), torch.randn(BATCH, KV_HEADS, n, DIM)


def dense(query, key, value, chosen):
    """Computes attention head by head; `chosen` gives the tokens of a sequence's KV head."""
    out = torch.empty_like(query)
    for b in range(BATCH):
        for h in range(HEADS):
            tokens = sorted(chosen(b, h // GROUP))
            weights = (key[b, h // GROUP, tokens] @ query[b, h, 0] * SCALE).softmax(0)
            out[b, h, 0] = weights @ value[b, h // GROUP, tokens]
    return out


def same(a, b):
    assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


def heads_of(query, b, g):
    return query[b, g * GROUP:(g + 1) * GROUP, 0]


def best(scores, k):
    return scores.topk(k).indices.tolist()


def before(name, key, value, budget):
    """Returns the policy before its newest token arrives."""
    return policies.policy_of(name, key[:, :, :-1], value[:, :, :-1], budget, key.shape[2])


def test_quest_attends_to_the_pages_of_its_rule():
    for n in (160, 173, 161):  # full pages; a last page of 13 tokens; a last page with only the newest token
        query, key, value = tensors(n)
        function, _, state = before('quest', key, value, 64)

        def chosen(b, g):
            pages = [key[b, g, i:i + 16] for i in range(0, n - n % 16, 16)]
            bounds = [max(sum(max(q[j] * p[:, j].min(), q[j] * p[:, j].max()) for j in range(DIM)) for q in heads_of(query, b, g))
                      for p in pages]
            picks = best(torch.stack(bounds), 4 - (n % 16 > 0))
            return [i for p in picks for i in range(16 * p, 16 * p + 16)] + list(range(n - n % 16, n))

        same(function(query, key, value, SCALE, 64, **state), dense(query, key, value, chosen))


def sparq_scores(query, key, b, g, dims):
    heads = heads_of(query, b, g)
    there = best(heads.abs().sum(0), dims)
    share = heads[:, there].abs().sum(1) / heads.abs().sum(1)
    return heads[:, there] @ key[b, g][:, there].T / (share * DIM).sqrt()[:, None]


def test_sparq_attends_to_the_tokens_of_its_rule():
    query, key, value = tensors(150)
    _, _, state = before('sparq', key, value, 40)
    state['dims'] = 5

    def chosen(b, g):
        return best(sparq_scores(query, key, b, g, 5).sum(0), 41)

    out = dense(query, key, value, chosen)
    for b in range(BATCH):
        for h in range(HEADS):
            weights = sparq_scores(query, key, b, h // GROUP, 5)[h % GROUP].softmax(0)
            share = weights[chosen(b, h // GROUP)].sum()
            out[b, h, 0] = share * out[b, h, 0] + (1 - share) * value[b, h // GROUP].mean(0)
    same(policies.sparq_attention(query, key, value, SCALE, 40, **state), out)


def test_hsa_attends_to_the_tokens_of_its_rule():
    for n in (160, 157):
        query, key, value = tensors(n)
        function, named, state = before('hsa', key, value, 40)
        page, dims = named['page'], named['dims']
        assert page == 2 and dims == int(DIM * 2 / (n / 40))

        def chosen(b, g):
            heads = heads_of(query, b, g)
            there = best(heads.abs().sum(0), dims)
            of_token = [key[b, g, i - i % page:i - i % page + page] for i in range(n)]
            bound = torch.stack([torch.where(heads.sum(0) > 0, p.max(0).values, p.min(0).values) for p in of_token])
            divisor = (heads[:, there].abs().sum(1) / heads.abs().sum(1) * DIM).sqrt()
            weights = (heads[:, there] @ bound[:, there].T / divisor[:, None]).softmax(1).mean(0)
            seen.append(weights.sort(descending=True).values)
            return best(weights, 20)

        # The tokens of a page tie; where the last pick splits a page, either of its tokens is right.
        seen = []
        out, expected = function(query, key, value, SCALE, 40, **state), dense(query, key, value, chosen)
        split = [bool(w[19] == w[20]) for w in seen]
        for i, is_split in enumerate(split):
            if not is_split:
                same(out[i // HEADS, i % HEADS], expected[i // HEADS, i % HEADS])
        assert not all(split)


def test_exact_topk_attends_to_the_tokens_of_its_rule():
    query, key, value = tensors(90)

    def chosen(b, g):
        return best((heads_of(query, b, g) @ key[b, g].T).max(0).values, 30)

    same(policies.exact_topk_attention(query, key, value, SCALE, 30), dense(query, key, value, chosen))


def test_a_budget_that_covers_all_tokens_is_full_attention():
    query, key, value = tensors(70)
    full = dense(query, key, value, lambda b, g: range(70))
    same(policies.attention(query, key, value, SCALE), full)
    for name in ('quest', 'sparq', 'hsa', 'exact_topk'):
        for budget in (70, 75):
            function, _, state = before(name, key, value, budget)
            same(function(query, key, value, SCALE, budget, **state), full)


def test_the_prompt_is_evicted_by_its_rule():
    n, window = 120, 64
    query, key, value = tensors(n, n)
    whole = policies.attention(query, key, value, SCALE, causal=True)
    snapkv, keydiff = (policies.SCORERS[name](query, key, value, SCALE) for name in ('snapkv', 'keydiff'))
    for b in range(BATCH):
        for g in range(KV_HEADS):
            pooled = torch.zeros(n - window)
            for h in range(g * GROUP, (g + 1) * GROUP):
                scores = query[b, h] @ key[b, g].T * SCALE
                weights = scores.masked_fill(torch.ones(n, n).triu(1) > 0, -math.inf).softmax(1)
                same(whole[b, h], weights @ value[b, g])
                mean = torch.cat([torch.zeros(2), weights[-window:, :n - window].mean(0), torch.zeros(2)])
                pooled += mean.unfold(0, 5, 1).mean(1) / GROUP
            same(snapkv[b, g, :n - window], pooled)
            units = key[b, g] / key[b, g].norm(dim=1, keepdim=True)
            same(keydiff[b, g], -units @ units.mean(0) / units.mean(0).norm())
    kept, _ = policies.evict(policies.snapkv_scores, query, key, value, SCALE, 70)
    assert kept.shape == (BATCH, KV_HEADS, 70, DIM)
    for token in range(n - window, n):  # the window is kept
        assert all((kept[b, g] == key[b, g, token]).all(1).any() for b in range(BATCH) for g in range(KV_HEADS))


def test_page_sizes_and_cache_lengths_are_right():
    assert policies.hsa_split(32768, 2048, 128) == (4, 32) and policies.hsa_split(131072, 2048, 128) == (8, 16)
    assert policies.held_of('rocketkv', 32768, 1024) == 5792 and policies.held_of('quest', 32768, 1024) == 32768


for name, test in list(globals().items()):
    if name.startswith('test_'):
        test()
print('policies attend to the tokens that they select')
