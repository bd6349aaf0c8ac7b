"""Assembles the spooled data into a trace file."""

import struct
from itertools import chain
from pathlib import Path
from typing import Iterator, Mapping, Sequence

from .plan import DTYPES, Plan
from .safetensors_file import Tensor, write
from .spool import Spool


def assemble(path: Path, plan: Plan, spool: Spool, optional: Mapping[str, str]) -> None:
    """Writes the trace of a finished capture. optional: `model` and other optional metadata of a trace."""
    dtype = DTYPES[plan.dtype]

    def heads(layer: int, kind: str, chosen: Sequence[int]) -> Iterator[bytes]:
        return chain.from_iterable(spool.head(layer, kind, head) for head in chosen)

    positions = range(plan.first_query, plan.positions)
    tensors = [Tensor("query_positions", "I64", (plan.n_queries,), [struct.pack(f"<{plan.n_queries}q", *positions)])]
    d = plan.shape.head_dim
    for layer in plan.layers:
        kv = (len(plan.kv_heads), plan.positions, d)
        q = (len(plan.q_heads), plan.n_queries, d)
        tensors.append(Tensor(f"layers.{layer}.keys", dtype, kv, heads(layer, "keys", plan.kv_heads)))
        tensors.append(Tensor(f"layers.{layer}.values", dtype, kv, heads(layer, "values", plan.kv_heads)))
        tensors.append(Tensor(f"layers.{layer}.queries", dtype, q, heads(layer, "queries", plan.q_heads)))
        if plan.hidden:
            tensors.append(Tensor(f"layers.{layer}.hidden", dtype, (plan.n_queries, plan.shape.hidden),
                                  heads(layer, "hidden", [0])))
    write(path, plan.metadata(optional), tensors)
