"""The measured policies with their settings and budgets. Windows and pages are scaled to contexts of a few thousand tokens."""

from typing import Any, Iterator

SHARES = (32, 16, 8, 4, 2)  # budgets are the context divided by these
WITH_PROFILE = ("headkv", "compresskv", "duo_attention", "razor_attention")


def settings(context: int, head_dim: int, profile: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields policies and parameters; policies that need a head profile are left out if there is none."""
    yield "full", {}
    for share in SHARES:
        budget = context // share
        for policy, others in at_budget(budget, context, head_dim).items():
            yield policy, {"budget": budget, **others}
        yield from by_threshold(share, context)
        if profile is not None:
            yield "headkv", {"budget": budget, "window": within(16, budget), "profile": profile}
            yield "compresskv", {"budget": budget, "window": within(8, budget), "least_layer_budget": within(16, budget),
                                 "profile": profile}
            yield "duo_attention", {"budget": budget, "sink": 16, "recent": 48, "profile": profile}
            yield "razor_attention", {"least_buffer": budget, "divisor": 1e6, "profile": profile}


def within(size: int, budget: int, parts: int = 2) -> int:
    """Returns the size, or one of `parts` equal parts of the budget if that is smaller."""
    return min(size, budget // parts)


def at_budget(budget: int, context: int, head_dim: int) -> dict[str, dict[str, Any]]:
    """Returns the parameters other than the budget. rocketkv_mt is left out: in a single turn it attends to the same tokens as
    rocketkv."""
    window, near = {"window": within(16, budget)}, within(16, budget, 4)
    return {
        "exact_topk": {}, "streaming_llm": {"sink": min(4, budget // 2)}, "h2o": {}, "tova": {},
        "raas": {"page": within(8, budget)}, "d2o": {"sink": min(4, budget // 2)}, "keydiff": {}, "keyl2norm": {},
        "snapkv": window, "pyramidkv": window, "adakv": window, "cake": window,
        "quest": {"page": within(16, budget)}, "sparq": {"dims": head_dim // 4}, "loki": {"dims": head_dim // 4}, "hsa": {},
        "rocketkv": {**window, "pool_kernel": 15},
        "arkvale": {"page": within(16, budget), "topk": max(1, budget // 64)},
        "shadowkv": {"page": within(8, budget), "recent": near, "outliers": context // 256, "rank": head_dim},
        "freekv": {"page": near, "sink": near, "recent": near},
        "ctkvr": {"sink": near, "recent": near}, "retrieval_attention": {"sink": near, "recent": near},
    }


def by_threshold(share: int, context: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields policies without a budget, with settings that read about one in `share` tokens."""
    yield "squeezed_attention", {"sparsity": 1 - 1 / share, "window": min(64, context // 16)}
    yield "infinigen", {"alpha": 8, "max_share": 1 / share}
    yield "magicpig", {"hash_bits": {32: 10, 16: 9, 8: 8, 4: 7, 2: 6}[share], "sink": 4, "recent": min(16, context // 16)}
