"""KV-cache policies in plain PyTorch operations, after the papers and their released code; transformers_policies.py times them.
Tensors are [batch, heads, tokens, dim]; a decode step has one query token per sequence, whose key and value are the newest in the
cache. Needs only PyTorch.
"""
import math

import torch
import torch.nn.functional as F

# PyTorch's own attention supports groups of query heads from this release on.
GROUPED = tuple(int(part) for part in torch.__version__.split('.')[:2]) >= (2, 5)


def repeated(x, dim, times):
    """Repeats each entry along a dimension `times` times, as repeat_kv of transformers does."""
    return x.unsqueeze(dim + 1).expand(*x.shape[:dim + 1], times, *x.shape[dim + 1:]).flatten(dim, dim + 1)


def attention(query, key, value, scale, causal=False):
    """Computes full attention of [batch, heads, rows, dim] over [batch, KV heads, tokens, dim]."""
    if GROUPED:
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale, enable_gqa=True)
    key, value = (repeated(x, 1, query.shape[1] // x.shape[1]) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scale
    if causal:
        later = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(key.shape[2] - query.shape[2] + 1)
        scores = scores.masked_fill(later, -math.inf)
    return scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def gathered(key, value, tokens):
    index = tokens.unsqueeze(-1).expand(-1, -1, -1, key.shape[-1])
    return key.gather(2, index), value.gather(2, index)


def grouped(query, kv_heads):
    """Reshapes [batch, heads, 1, dim] to [batch, KV heads, group, dim]."""
    return query.reshape(query.shape[0], kv_heads, -1, query.shape[-1])


def page_bounds(key, page, room=0):
    """Returns minima and maxima of each page's keys, with space for `room` more tokens: [batch, KV heads, pages, dim] each."""
    padding = (0, 0, 0, -key.shape[2] % page + math.ceil(room / page) * page)
    pages = (F.pad(key, padding, value=end).unflatten(2, (-1, page)) for end in (math.inf, -math.inf))
    return next(pages).amin(3), next(pages).amax(3)


def quest_tokens(query, key, budget, page, minima, maxima):
    """Adds the newest key to its page's bounds; returns the tokens of the pages with the largest bounds on scores. A partial last
    page is always among them, as in the released runtime."""
    n, new = key.shape[2], key[:, :, -1]
    last, full = (n - 1) // page, n // page
    minima[:, :, last] = torch.minimum(minima[:, :, last], new)
    maxima[:, :, last] = torch.maximum(maxima[:, :, last], new)
    q = grouped(query, key.shape[1]).unsqueeze(3)
    bounds = torch.maximum(q * minima[:, :, None, :full], q * maxima[:, :, None, :full]).sum(-1)
    pages = bounds.amax(2).topk(budget // page - (full <= last), -1).indices
    tokens = (pages.unsqueeze(-1) * page + torch.arange(page, device=key.device)).flatten(2)
    if full > last:
        return tokens
    rest = torch.arange(full * page, n, device=key.device).expand(*tokens.shape[:2], -1)
    return torch.cat([tokens, rest], -1)


def quest_attention(query, key, value, scale, budget, **state):
    if budget >= key.shape[2]:
        return attention(query, key, value, scale)
    return attention(query, *gathered(key, value, quest_tokens(query, key, budget, **state)), scale)


def large_dims(q, dims):
    """Returns the dimensions that are largest in a group of queries, the queries in them, and SparQ's divisor of their scores."""
    magnitude = q.abs()
    chosen = magnitude.sum(2, keepdim=True).topk(dims, -1).indices
    there = q.gather(3, chosen.expand(-1, -1, q.shape[2], -1))
    share = there.abs().sum(-1, keepdim=True) / magnitude.sum(-1, keepdim=True)
    return chosen, there, (share * q.shape[-1]).sqrt()


def sparq_attention(query, key, value, scale, budget, dims, value_sum):
    """Attends to tokens selected by the group's summed scores over a few dimensions; the others contribute the mean value."""
    kv_heads, n = key.shape[1:3]
    value_sum += value[:, :, -1:]
    if budget + 1 >= n:
        return attention(query, key, value, scale)
    chosen, there, divisor = large_dims(grouped(query, kv_heads), dims)
    scores = there @ key.gather(3, chosen.expand(-1, -1, n, -1)).transpose(2, 3) / divisor
    tokens = scores.float().sum(2).topk(budget + 1, -1).indices
    weights = scores.softmax(-1, dtype=torch.float32).gather(3, tokens.unsqueeze(2).expand(-1, -1, scores.shape[2], -1))
    share = weights.sum(-1, keepdim=True).to(value.dtype)
    out = grouped(attention(query, *gathered(key, value, tokens), scale), kv_heads)
    return (share * out + (1 - share) * (value_sum / n).to(value.dtype)).reshape(query.shape)


def hsa_tokens(query, key, keep, page, dims, bounds):
    """RocketKV's second stage: selects tokens by scores of pages over a few dimensions. In each of them the sign of the group's
    summed query selects minimum or maximum. `bounds`: [batch, KV heads, minima and maxima, pages]."""
    n, d, new = key.shape[2], key.shape[3], key[:, :, -1]
    last = (n - 1) // page
    bounds[:, :, :d, last] = torch.minimum(bounds[:, :, :d, last], new)
    bounds[:, :, d:, last] = torch.maximum(bounds[:, :, d:, last], new)
    chosen, there, divisor = large_dims(grouped(query, key.shape[1]), dims)
    rows = torch.where(there.sum(2, keepdim=True) > 0, chosen + d, chosen).transpose(2, 3).expand(-1, -1, -1, last + 1)
    scores = repeated(there @ bounds[..., :last + 1].gather(2, rows), 3, page)[..., :n]
    return (scores / divisor).softmax(-1).mean(2).topk(keep, -1).indices


def hsa_attention(query, key, value, scale, budget, **state):
    if budget >= key.shape[2]:
        return attention(query, key, value, scale)
    return attention(query, *gathered(key, value, hsa_tokens(query, key, budget // 2, **state)), scale)


def exact_topk_attention(query, key, value, scale, budget):
    if budget >= key.shape[2]:
        return attention(query, key, value, scale)
    scores = grouped(query, key.shape[1]) @ key.transpose(2, 3)
    return attention(query, *gathered(key, value, scores.amax(2).topk(budget, -1).indices), scale)


def snapkv_scores(query, key, value, scale, window=64, kernel=5):
    """Returns weights of the last queries over the tokens before them, with the operations of kvpress; the window ranks first."""
    batch, kv_heads, n, _ = key.shape
    weights = query[:, :, -window:] @ repeated(key, 1, query.shape[1] // kv_heads).transpose(2, 3) * scale
    weights += torch.triu(torch.ones_like(weights) * -math.inf, diagonal=n - window + 1)
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)[..., :-window]
    scores = F.avg_pool1d(weights.mean(2), kernel, stride=1, padding=kernel // 2)
    scores = scores.view(batch, kv_heads, -1, n - window).mean(2)
    return F.pad(scores, (0, window), value=scores.max().item())


def keydiff_scores(query, key, value, scale):
    return -F.cosine_similarity(key, F.normalize(key, p=2, dim=-1).mean(2, keepdim=True), dim=-1)


def evict(scores_of, query, key, value, scale, budget):
    """Returns keys and values of the tokens that are kept after a prompt."""
    return gathered(key, value, scores_of(query, key, value, scale).topk(min(budget, key.shape[2]), -1).indices)


SCORERS = {'snapkv': snapkv_scores, 'keydiff': keydiff_scores}


def hsa_split(length, budget, dim):
    """Returns page size and number of dimensions for a cache of that length; the ratio is divided between them as in RocketKV's
    code."""
    ratio = max(1.0, length / budget)
    page = min(int(ratio), math.ceil(math.sqrt(ratio)))
    return page, max(1, int(dim * page / ratio))


def held_of(policy, context, budget):
    """Returns the number of tokens in the cache; RocketKV's first stage has evicted the rest of the prompt."""
    ratio = context / budget if policy == 'rocketkv' else 1
    return int(context / max(1, ratio) ** min(0.2 + 0.06 * math.log2(max(1, ratio)), 0.8))


def policy_of(name, key, value, budget, length):
    """Returns attention function, named parameters and state for a layer whose cache will have `length` tokens."""
    if name == 'quest':
        minima, maxima = page_bounds(key, 16, 64)
        return quest_attention, {'page': 16, 'group': 'max_scores'}, {
            'page': 16, 'minima': minima, 'maxima': maxima}
    if name == 'sparq':
        return sparq_attention, {'dims': 32, 'keys': 'stored_once'}, {
            'dims': 32, 'value_sum': value.sum(2, keepdim=True, dtype=torch.float32)}
    if name in ('hsa', 'rocketkv'):
        page, dims = hsa_split(length, budget, key.shape[-1])
        bounds = torch.cat(page_bounds(key, page, 64), -1).transpose(2, 3).contiguous()
        return hsa_attention, {'page': page, 'dims': dims}, {'page': page, 'dims': dims, 'bounds': bounds}
    return exact_topk_attention, {'group': 'max_scores'}, {}
