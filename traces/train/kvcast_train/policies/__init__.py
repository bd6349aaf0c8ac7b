"""The policies that run inside attention, vectorised over a batch; their meanings and defaults are those of kvcast."""

from typing import Any

from .base import Lengths, Policy, Prompt, Selection, Selector, Shape, Step
from .eviction import H2o, KeyDiff, Tova
from .host_index import Ctkvr, RetrievalAttention, ShadowKv
from .host_pages import ArkVale, FreeKv, Raas
from .merging import D2o
from .prompt_end import AdaKv, Cake, CompressKv, HeadKv, KeyL2Norm, PyramidKv, SnapKv
from .retrieval import ExactTopK, Loki, Quest, Sparq
from .rocket import Hsa, RocketKv, RocketKvMt
from .static import DuoAttention, Full, RazorAttention, StreamingLlm
from .thresholds import InfiniGen, MagicPig, SqueezedAttention

POLICIES: dict[str, type[Policy]] = {policy.NAME: policy for policy in (
    Full, ExactTopK, StreamingLlm, H2o, Tova, Raas, D2o, KeyDiff, KeyL2Norm, SnapKv, PyramidKv, AdaKv, HeadKv, Cake, CompressKv,
    DuoAttention, RazorAttention, Quest, Sparq, Loki, Hsa, RocketKv, RocketKvMt, SqueezedAttention, ArkVale, ShadowKv, InfiniGen,
    FreeKv, Ctkvr, RetrievalAttention, MagicPig)}


def make_policy(name: str, shape: Shape, lengths: Lengths, **parameters: Any) -> Policy:
    """Creates a policy; raises ValueError for unknown names and parameters and for budgets that are too small."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name}; known: {', '.join(POLICIES)}")
    return POLICIES[name](shape, lengths, **parameters)
