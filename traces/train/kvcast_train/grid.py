"""Policies, their settings and budgets: what is measured. Windows and pages are scaled to contexts of a few thousand tokens."""

from typing import Any, Iterator

SHARES = (32, 16, 8, 4, 2)  # budgets are the context over these
WITH_PROFILE = ("headkv", "compresskv", "duo_attention", "razor_attention")


def settings(context: int, profile: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Policy and parameters; those that need a profile are left out where there is none."""
    yield "full", {}
    for share in SHARES:
        budget = context // share
        for policy, others in at_budget(budget, context).items():
            yield policy, {"budget": budget, **others}
        yield from by_threshold(share)
        if profile is not None:
            yield "headkv", {"budget": budget, "window": 16, "profile": profile}
            yield "compresskv", {"budget": budget, "least_layer_budget": 16, "profile": profile}
            yield "duo_attention", {"budget": budget, "sink": 16, "recent": 48, "profile": profile}
            yield "razor_attention", {"least_buffer": budget, "divisor": 1e6, "profile": profile}


def at_budget(budget: int, context: int) -> dict[str, dict[str, Any]]:
    """Parameters beside the budget. rocketkv_mt is left out: in a single turn it attends to what rocketkv attends to."""
    window = {"window": 16}
    return {
        "exact_topk": {}, "streaming_llm": {}, "h2o": {}, "tova": {}, "raas": {"page": 8}, "d2o": {}, "keydiff": {},
        "keyl2norm": {}, "snapkv": window, "pyramidkv": window, "adakv": window, "cake": window,
        "quest": {}, "sparq": {"dims": 16}, "loki": {"dims": 16}, "hsa": {}, "rocketkv": {**window, "pool_kernel": 15},
        "arkvale": {"page": 16, "topk": max(1, budget // 64)},
        "shadowkv": {"recent": 16, "outliers": context // 256, "rank": 64},
        "freekv": {"page": 16, "sink": 16, "recent": 16},
        "ctkvr": {"sink": 16, "recent": 16},
    }


def by_threshold(share: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Policies without a budget, set to read about one in `share` tokens."""
    yield "squeezed_attention", {"sparsity": 1 - 1 / share, "window": 64}
    yield "infinigen", {"alpha": 8, "max_share": 1 / share}
    yield "magicpig", {"hash_bits": {32: 10, 16: 9, 8: 8, 4: 7, 2: 6}[share], "sink": 4, "recent": 16}
