"""Captures traces of the trained model for kvcast, from the items on which its accuracy is measured."""

import argparse
import json
import sys
from pathlib import Path
from typing import Callable, Sequence

import torch
from kvcast_capture import drive, plan
from kvcast_capture.tensors import TensorBlock, cache_of
from torch import Tensor

from . import tasks
from .evaluate import items_of
from .model import Model
from .train import environment, load_model


class SmallDecoder:
    """The trained model as a Decoder of kvcast_capture."""

    def __init__(self, model: Model, dtype: str, device: str):
        c = model.config
        self.shape = plan.Shape(c.layers, c.n_q_heads, c.n_kv_heads, c.head_dim, c.hidden, c.rope_theta)
        self._model, self._dtype, self._device = model, dtype, device
        self._caches: dict[int, tuple[Tensor, Tensor]] = {}

    def feed(self, tokens: Sequence[int], begin: int, record: Callable[[int, drive.Block], None]) -> int:
        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            record(layer, TensorBlock(self.shape, self._dtype, query[0], key[0], value[0]))
            if layer in self._caches:
                key, value = (torch.cat(pair, 2) for pair in zip(self._caches[layer], (key, value)))
            self._caches[layer] = key, value
            group = query.shape[1] // key.shape[1]
            scores = query @ key.repeat_interleave(group, 1).transpose(-1, -2) * query.shape[-1] ** -0.5
            seen = torch.arange(key.shape[2], device=query.device)[None] <= torch.arange(
                begin, begin + query.shape[2], device=query.device)[:, None]
            return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value.repeat_interleave(group, 1)

        with torch.no_grad():
            hidden = self._model(torch.tensor([list(tokens)], device=self._device), begin, attend)
            return int(self._model.logits(hidden[:, -1]).argmax(-1))

    def restore(self, layer: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        width = self.shape.head_dim
        self._caches[layer] = tuple(cache_of(part, self._dtype, width, self._device).float()
                                    for part in (keys, values))


def capture_item(model: Model, task: str, context: int, item: int, count: int, layers: str, window: int, dtype: str,
                 folder: Path, device: str, provenance: str) -> Path:
    """Captures the trace of one item. The right answer is fed, so that the token each step must find is known: the one after
    the token fed."""
    out = folder / f"{task}-{context}-{item}.safetensors"
    if out.exists():
        return out
    items = items_of(task, context, count, device)
    decoder = SmallDecoder(model, dtype, device)
    made = plan.Plan(shape=decoder.shape, layers=plan.parse_ids("layers", layers, decoder.shape.n_layers),
                     kv_heads=tuple(range(decoder.shape.n_kv_heads)), prompt_tokens=context,
                     decode_steps=items.steps, window=min(window, context), block=1024, dtype=dtype)
    targets = tasks.needed(task, items.targets[item].tolist())[1:]
    optional = {"model": "kvcast trained model", "task": task, "targets": json.dumps(targets), "provenance": provenance}
    drive.capture(decoder, made, items.prompt[item].tolist(), out, out.with_suffix(".work"), optional,
                  items.answer[item].tolist())
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="kvcast_train.capture", description="Captures traces of the trained model.")
    p.add_argument("folder", type=Path, help="the folder of model.pt")
    p.add_argument("out", type=Path, help="the folder for the traces")
    p.add_argument("--contexts", default="512,1024,2048")
    p.add_argument("--tasks", default=",".join(tasks.TASKS))
    p.add_argument("--items", type=int, default=64, help="as for the table, whose first items are captured")
    p.add_argument("--traces", type=int, default=2, help="traces per task and context (default 2)")
    p.add_argument("--layers", default="all")
    p.add_argument("--window", type=int, default=1 << 30, help="number of last prompt queries to keep (default all)")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--device", default="cuda")
    args = p.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    model = load_model(args.folder / "model.pt", args.device)
    provenance = f"kvcast_train: {json.dumps(environment(args.device), sort_keys=True)}"
    for context in map(int, args.contexts.split(",")):
        for task in args.tasks.split(","):
            for item in range(args.traces):
                print(capture_item(model, task, context, item, args.items, args.layers, args.window, args.dtype, args.out,
                                   args.device, provenance))
    return 0


if __name__ == "__main__":
    sys.exit(main())
