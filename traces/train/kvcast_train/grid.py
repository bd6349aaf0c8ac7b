"""Policies, their settings and budgets: what is measured. Windows and pages are scaled to contexts of a few thousand tokens."""

from typing import Any, Iterator

SHARES = (32, 16, 8, 4, 2)  # budgets are the context over these


def settings(context: int, profile: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Policy and parameters; those that need a profile are left out where there is none."""
    yield "full", {}
    for share in SHARES:
        budget = context // share
        for policy, others in at_budget(budget, context).items():
            yield policy, {"budget": budget, **others}
        if profile is not None:
            yield "headkv", {"budget": budget, "window": 16, "profile": profile}
            yield "compresskv", {"budget": budget, "least_layer_budget": 16, "profile": profile}
            yield "duo_attention", {"budget": budget, "sink": 16, "recent": 48, "profile": profile}


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
