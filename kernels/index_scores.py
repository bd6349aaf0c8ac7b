"""Scores of DeepSeek's lightning indexer in one Triton kernel: for each token the sum over heads of weight · ReLU(query · key)."""
import triton
import triton.language as tl

BLOCK = 128  # tokens of a program


@triton.jit
def score_kernel(queries, keys, scales, weights, out, tokens, apart, HEADS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr):
    row = tl.program_id(1)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    head, dim = tl.arange(0, HEADS), tl.arange(0, DIM)
    query = tl.load(queries + row * HEADS * DIM + head[:, None] * DIM + dim[None, :])
    at = row.to(tl.int64) * apart + token
    key = tl.load(keys + at[None, :] * DIM + dim[:, None])
    products = tl.maximum(tl.dot(query, key), 0.0)
    weight = tl.load(weights + row * HEADS + head)
    scores = tl.sum(products * weight[:, None], 0)
    tl.store(out + row.to(tl.int64) * tokens + token, scores * tl.load(scales + at))


def score(queries, keys, scales, weights, out, tokens, shared):
    """queries [rows, heads, dim] and keys [tokens, dim] in FP8, keys of one sequence after another unless shared; tokens is a multiple
    of BLOCK. out [rows, tokens] in single precision."""
    rows, heads, dim = queries.shape
    score_kernel[(tokens // BLOCK, rows)](queries, keys, scales, weights, out, tokens, 0 if shared else tokens, HEADS=heads, DIM=dim,
                                         TOKENS=BLOCK, num_warps=4, num_stages=1)
    return out
