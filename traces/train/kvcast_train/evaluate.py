"""Measures true accuracy: every policy and budget decodes the same prompts, greedily, inside the model's attention.

Prompts are read once, with full attention; each policy then decodes from the same cache. Each row is written as soon as it is
measured, and existing rows are not measured again, so that the command resumes where it stopped."""

import argparse
import csv
import json
import sys
import time
from pathlib import Path
from typing import Any, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from . import grid, tasks
from .model import Model, causal
from .policies import Lengths, Policy, Prompt, Selector, Step, make_policy
from .proxies import KEY, read_rows
from .train import environment, load_model

COLUMNS = ("task", "context", "policy", "parameters", "budget", "items", "accuracy", "stderr", "attended", "refused")


class Read:
    """Prompts [B, S] read with full attention: each layer's cache and queries."""

    def __init__(self, model: Model, prompt: Tensor):
        self.model, self.tokens = model, prompt.shape[1]
        self.layers: list[Prompt] = []

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self.layers.append(Prompt(layer, query, key, value))
            return causal(layer, query, key, value)

        with torch.no_grad():
            self.first = model.logits(model(prompt, attend=attend)[:, -1]).argmax(-1)

    def decode(self, policy: Policy, steps: int) -> tuple[Tensor, float]:
        """Returns the tokens [B, 1 + steps], which are the one that follows the prompt and those of the decode steps, and the mean
        number of attended tokens per selecting head and step."""
        policy.survey(self.layers)
        selectors: list[Selector] = [policy.begin(prompt) for prompt in self.layers]
        caches = [tuple(pad(cache, (0, 0, 0, steps)) for cache in (prompt.keys, prompt.values)) for prompt in self.layers]
        attended: list[Tensor] = []
        out, token = [self.first], self.first
        for t in range(steps):
            n = self.tokens + t + 1

            def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                keys, values = caches[layer]
                keys[:, :, n - 1], values[:, :, n - 1] = key[:, :, 0], value[:, :, 0]
                step = Step(t, query[:, :, 0], keys[:, :, :n], values[:, :, :n])
                selection = selectors[layer].step(step)
                attended.append(selection.mask.float().sum(-1).mean())
                return (step.attend(selection.mask)[0] if selection.output is None else selection.output)[:, :, None]

            with torch.no_grad():
                token = self.model.logits(self.model(token[:, None], n - 1, attend)[:, 0]).argmax(-1)
            out.append(token)
        return torch.stack(out, 1), float(torch.stack(attended).mean())


def grade(answer: Tensor, given: Tensor, parts: int) -> Tensor:
    """Returns the share of each answer's parts that are right, [B]; a part is right if all its tokens are."""
    return (answer == given).view(answer.shape[0], parts, -1).all(-1).double().mean(-1)


def items_of(task: str, context: int, count: int, device: str) -> tasks.Items:
    """Returns the items on which a task is measured; traces are captured from the same items."""
    seed = 7919 * (list(tasks.TASKS).index(task) + 1) + context
    return tasks.make_items(task, context, count, torch.Generator(device).manual_seed(seed))


def measure(read: Read, items: tasks.Items, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns the measured values of a row."""
    lengths = Lengths(items.prompt.shape[1], items.steps)
    try:
        policy = make_policy(name, read.model.config.shape, lengths, **parameters)
        given, attended = read.decode(policy, lengths.steps)
    except ValueError as error:
        return {"refused": str(error)}
    right = grade(items.answer, given, items.parts)
    spread = float(right.std(unbiased=True) / len(right) ** 0.5) if len(right) > 1 else float("nan")
    return {"accuracy": f"{100 * float(right.mean()):.3f}", "stderr": f"{100 * spread:.3f}", "attended": f"{attended:.2f}"}


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[key]) for key in KEY)


def run(model: Model, table: Path, contexts: Sequence[int], names: Sequence[str], count: int, device: str,
        profile: str | None, minutes: float) -> bool:
    """Appends the missing rows; returns True once none is missing."""
    done = {key_of(row) for row in read_rows(table)} if table.exists() else set()
    began = time.monotonic()
    with open(table, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        if file.tell() == 0:
            writer.writeheader()
        for context in contexts:
            for task in names:
                rows = [{"task": task, "context": context, "policy": policy, "budget": given.get("budget", ""), "items": count,
                         "parameters": json.dumps({k: v for k, v in given.items() if k != "profile"}, sort_keys=True),
                         "given": given} for policy, given in grid.settings(context, model.config.head_dim, profile)]
                missing = [row for row in rows if key_of(row) not in done]
                if not missing:
                    continue
                items = items_of(task, context, count, device)
                read = Read(model, items.prompt)
                for row in missing:
                    if time.monotonic() - began > 60 * minutes:
                        return False
                    given = row.pop("given")
                    writer.writerow({**row, **measure(read, items, row["policy"], given)})
                    file.flush()
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="kvcast_train.evaluate", description="Measures true accuracy of policy × budget × task.")
    p.add_argument("folder", type=Path, help="the folder of model.pt; table.csv and environment.json are written there")
    p.add_argument("--contexts", default="512,1024,2048")
    p.add_argument("--tasks", default=",".join(tasks.TASKS))
    p.add_argument("--items", type=int, default=64)
    p.add_argument("--device", default="cuda")
    p.add_argument("--profile", help="a head profile from `kvcast profile`, for the policies that need one")
    p.add_argument("--minutes", type=float, default=8, help="time limit of this call (default 8)")
    args = p.parse_args(arguments)
    model = load_model(args.folder / "model.pt", args.device)
    (args.folder / "environment.json").write_text(json.dumps(environment(args.device), indent=1) + "\n")
    contexts = [int(context) for context in args.contexts.split(",")]
    finished = run(model, args.folder / "table.csv", contexts, args.tasks.split(","), args.items, args.device, args.profile,
                   args.minutes)
    print(f"{args.folder / 'table.csv'}: {'finished' if finished else 'run the same command again to continue'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
