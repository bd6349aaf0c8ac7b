"""Runs a policy on a trace and writes its selections, as `kvcast replay --selections` does, and the attention mass it keeps.

python3 -m kvcast_train.selections TRACE POLICY [key=value …] writes JSON lines to stdout. Exit codes: 0 done, 2 wrong input, 77 no
PyTorch.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from kvcast_capture.errors import CaptureError
from kvcast_capture.safetensors_file import read_bytes, read_header

try:
    import torch
except ImportError:
    if __name__ != "__main__":
        raise
    print("kvcast_train.selections: PyTorch is not installed", file=sys.stderr)
    sys.exit(77)

from .policies import Lengths, Prompt, Shape, Step, make_policy

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32}


@dataclass
class Trace:
    """A trace file in memory, in single precision."""

    shape: Shape
    lengths: Lengths
    layers: list[int]
    tensors: dict[str, torch.Tensor]
    prompt_queries: int  # number captured without a gap before the first decode step

    @staticmethod
    def read(path: Path) -> "Trace":
        header, _ = read_header(path)
        said = header.pop("__metadata__")
        if any(0 < turn < int(said["prompt_tokens"]) for turn in json.loads(said.get("turns", "[]"))):
            raise ValueError(f"{path}: its prompt has several turns, but the policies here read a prompt as one turn")
        tensors = {}
        for name in header:
            entry, data = read_bytes(path, name)
            tensor = torch.frombuffer(bytearray(data), dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = tensor.float() if tensor.is_floating_point() else tensor
        shape = Shape(*(int(said[key]) for key in ("n_layers", "n_q_heads", "n_kv_heads", "head_dim")),
                      float(said["rope_theta"]))
        lengths = Lengths(int(said["prompt_tokens"]), int(said["decode_steps"]))
        before = [p for p in tensors["query_positions"].tolist() if p < lengths.prompt]
        gapless = sum(1 for i, p in enumerate(reversed(before)) if p == lengths.prompt - 1 - i)
        return Trace(shape, lengths, [int(layer) for layer in said["layers"].split(",")], tensors, gapless)

    def prompt(self, layer: int) -> Prompt:
        queries = self.tensors[f"layers.{layer}.queries"][:, : -self.lengths.steps]
        keys, values = (self.tensors[f"layers.{layer}.{kind}"][:, : self.lengths.prompt] for kind in ("keys", "values"))
        return Prompt(layer, queries[None, :, queries.shape[1] - self.prompt_queries:], keys[None], values[None])

    def step(self, layer: int, t: int) -> Step:
        n = self.lengths.prompt + t + 1
        query = self.tensors[f"layers.{layer}.queries"][:, t - self.lengths.steps]
        keys, values = (self.tensors[f"layers.{layer}.{kind}"][:, :n] for kind in ("keys", "values"))
        return Step(t, query[None], keys[None], values[None])


def run(trace: Trace, name: str, parameters: dict[str, Any]) -> Iterator[tuple[int, int, torch.Tensor, float, float]]:
    """Yields layer, step, mask [heads, n], mean attention mass kept and mean relative output error; at step −1 the mask is the
    tokens resident after the prompt."""
    policy = make_policy(name, trace.shape, trace.lengths, **parameters)
    prompts = [trace.prompt(layer) for layer in trace.layers]
    policy.survey(prompts)
    for prompt in prompts:
        selector = policy.begin(prompt)
        yield prompt.layer, -1, selector.resident()[0], 1.0, 0.0
        for t in range(trace.lengths.steps):
            step = trace.step(prompt.layer, t)
            selection = selector.step(step)
            full, weights = step.attend(step.everything(trace.shape.n_kv_heads))
            output = selection.output if selection.output is not None else step.attend(selection.mask)[0]
            mask = selection.mask.repeat_interleave(weights.shape[1] // selection.mask.shape[1], 1)
            error = (output - full).norm(dim=-1) / full.norm(dim=-1)
            yield prompt.layer, t, selection.mask[0], float((weights * mask).sum(-1).mean()), float(error.mean())


def parse_parameters(settings: Sequence[str]) -> dict[str, Any]:
    """Parses key=value settings; numeric values become numbers."""
    out: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            out[key] = json.loads(value)
        except ValueError:
            out[key] = value
    return out


def check_numbers(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuses anything but a number of at least 0 for a parameter whose default is a number."""
    for key, value in parameters.items():
        if type(defaults[key]) in (int, float) and (type(value) not in (int, float) or value < 0):
            raise ValueError(f"{key} must be a number of at least 0, found {value!r}")


def main(arguments: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(prog="kvcast_train.selections", description="Prints a policy's selections on a trace as JSON lines.")
    p.add_argument("trace", type=Path, help="a trace file (safetensors)")
    p.add_argument("policy")
    p.add_argument("settings", nargs="*", metavar="key=value", help="parameters of the policy")
    args = p.parse_args(arguments)
    parameters = parse_parameters(args.settings)
    try:
        trace = Trace.read(args.trace)
        # Raises errors before anything is written.
        check_numbers(parameters, make_policy(args.policy, trace.shape, trace.lengths, **parameters).DEFAULTS)
    except (CaptureError, OSError, TypeError, ValueError) as error:
        p.error(str(error))
    except KeyError as error:
        p.error(f"{args.trace}: not a kvcast trace: {error} is missing")
    try:
        for layer, t, mask, _, _ in run(trace, args.policy, parameters):
            key = "kv_head" if mask.shape[0] == trace.shape.n_kv_heads else "q_head"
            for head, row in enumerate(mask):
                print(json.dumps({"layer": layer, "step": t, key: head, "attended": row.nonzero()[:, 0].tolist()}))
    except ValueError as error:  # settings that do not fit together or into the prompt
        p.error(str(error))


if __name__ == "__main__":
    main()
