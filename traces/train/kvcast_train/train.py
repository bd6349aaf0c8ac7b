"""Trains the model in pieces: a piece ends after --minutes, and the same command resumes from the checkpoint.

Contexts grow from short to long. The next length starts when answers at the current one are right often enough, and in any case
early enough to leave half of the time for the longest. The learning rate follows the training time, so that the whole training
takes --total-minutes at any GPU speed."""

import argparse
import json
import math
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

import torch
from torch.nn import functional

from . import tasks
from .model import Config, Model

GOOD = 0.9  # share of right answer tokens at which the context doubles
BODY = 0.05  # weight of the body's own words in the loss; preserves heads that attend nearby
EVERY = 8  # one in so many of the body's words enters the loss


@dataclass(frozen=True)
class Size:
    config: Config
    first_context: int
    context: int
    tokens_a_step: int
    rate: float


SIZES = {
    "toy": Size(Config(tasks.VOCABULARY, 2, 32, 4, 2, 8, 64), 64, 128, 512, 3e-3),
    "tiny": Size(Config(tasks.VOCABULARY, 2, 64, 4, 2, 16, 128), 64, 128, 4096, 4e-3),  # one CPU core trains it in 40 minutes
    "small": Size(Config(tasks.VOCABULARY, 8, 512, 8, 2, 64, 1408), 64, 2048, 32768, 1e-3),
}


@dataclass
class State:
    """Training state that one piece passes to the next."""

    step: int = 0
    seconds: float = 0.0
    stage: int = 0  # contexts are up to first_context · 2^stage
    right: float = 0.0  # smoothed share of right answer tokens at the stage's context
    ended: bool = False  # the checkpoint has only the weights, from which training cannot resume


def contexts(size: Size) -> list[int]:
    out = [size.first_context]
    while out[-1] < size.context:
        out.append(min(size.context, 2 * out[-1]))
    return out


def learning_rate(size: Size, step: int, share: float) -> float:
    """Warms up over 200 steps, then follows a cosine down to a tenth; share: elapsed share of the time, in [0, 1]."""
    return size.rate * min(1.0, (step + 1) / 200) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


class Trainer:
    def __init__(self, size: Size, device: str, seed: int):
        torch.manual_seed(seed)
        self.size, self.device, self.seed, self.state = size, device, seed, State()
        self.model = Model(size.config).to(device)
        decayed = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=size.rate, betas=(0.9, 0.95))
        self._contexts = contexts(size)

    def step(self, share: float) -> tuple[float, float, int]:
        """Returns the loss of the answers, the share of their tokens that are right, and the length of the texts."""
        # The texts of a step depend only on its number: a resumed run equals an uninterrupted one.
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.state.step)
        stage = self.state.stage
        if self.state.step % 4 == 3:  # a quarter of the steps has a shorter context, so that it is not forgotten
            stage = self.state.step // 4 % (stage + 1)
        n = self._contexts[stage]
        tokens, answers = tasks.make_training_batch(n, max(1, self.size.tokens_a_step // n), generator)
        with torch.autocast("cuda", torch.bfloat16) if self.device.startswith("cuda") else nullcontext():
            hidden, mask, words = self.model(tokens[:, :-1]), answers[:, 1:], tokens[:, 1:]
            logits = self.model.logits(hidden[mask])
            sample = self.state.step % EVERY
            body = ~mask[:, sample::EVERY]
            others = self.model.logits(hidden[:, sample::EVERY][body])
        loss = functional.cross_entropy(logits, words[mask])
        rate = learning_rate(self.size, self.state.step, share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        (loss + BODY * functional.cross_entropy(others, words[:, sample::EVERY][body])).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        right = float((logits.argmax(-1) == words[mask]).float().mean())
        self._advance(stage, right, share)
        return float(loss), right, n

    def _advance(self, stage: int, right: float, share: float) -> None:
        s, last = self.state, len(self._contexts) - 1
        s.step += 1
        if stage == s.stage:
            s.right = 0.95 * s.right + 0.05 * right
        if s.stage < last and (s.right >= GOOD or share >= 0.5 * (s.stage + 1) / last):
            s.stage, s.right = s.stage + 1, 0.0

    def save(self, path: Path, extra: dict[str, Any]) -> None:
        temporary = path.with_suffix(".part")
        torch.save({"config": self.size.config.plain(), "model": self.model.state_dict(), "seed": self.seed,
                    "optimizer": self.optimizer.state_dict(), "state": vars(self.state), **extra}, temporary)
        os.replace(temporary, path)

    def load(self, path: Path) -> None:
        found = torch.load(path, map_location=self.device)
        if found["config"] != self.size.config.plain() or found["seed"] != self.seed:
            raise SystemExit(f"{path} has another model or seed: remove it or choose another folder")
        self.model.load_state_dict(found["model"])
        if "optimizer" not in found:
            self.state.ended = True
            return
        self.optimizer.load_state_dict(found["optimizer"])
        self.state = State(**found["state"])


def load_model(path: Path, device: str) -> Model:
    """Loads the trained model, for evaluation."""
    found = torch.load(path, map_location=device)
    model = Model(Config(**found["config"])).to(device).eval()
    model.load_state_dict(found["model"])
    return model


def environment(device: str) -> dict[str, Any]:
    """Returns the environment of a measurement."""
    card = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return {"device": card, "torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}


def run(size_name: str, folder: Path, device: str, seed: int, minutes: float, total_minutes: float,
        steps: int | None = None) -> State:
    """Trains one piece; `steps` limits the number of its steps."""
    folder.mkdir(parents=True, exist_ok=True)
    trainer, checkpoint = Trainer(SIZES[size_name], device, seed), folder / "model.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
    state, began, first = trainer.state, time.monotonic(), trainer.state.step
    if state.ended:
        return state
    before, saved = state.seconds, began
    with open(folder / "training.jsonl", "a", encoding="utf-8") as log:
        while state.seconds < 60 * total_minutes and time.monotonic() - began < 60 * minutes:
            if steps is not None and state.step - first >= steps:
                break
            loss, right, n = trainer.step(state.seconds / (60 * total_minutes))
            state.seconds = before + time.monotonic() - began
            if state.step % 50 < 2:  # two steps, because one may have a shorter text
                row = {"step": state.step, "seconds": round(state.seconds, 1), "context": n, "loss": round(loss, 4),
                       "right": round(right, 4)}
                log.write(json.dumps(row) + "\n")
                log.flush()
            if time.monotonic() - saved > 60:
                trainer.save(checkpoint, {"size": size_name})
                saved = time.monotonic()
    trainer.save(checkpoint, {"size": size_name})
    return state


def main(arguments: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="kvcast_train.train", description="Trains the model, one piece per call.")
    p.add_argument("folder", type=Path, help="folder of checkpoint and log")
    p.add_argument("--size", choices=SIZES, default="small")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--minutes", type=float, default=8, help="time limit of this piece (default 8)")
    p.add_argument("--total-minutes", type=float, default=20, help="training time of all pieces (default 20)")
    args = p.parse_args(arguments)
    state = run(args.size, args.folder, args.device, args.seed, args.minutes, args.total_minutes)
    finished = state.ended or state.seconds >= 60 * args.total_minutes
    print(f"{args.folder}: {state.step} steps, {state.seconds / 60:.1f} of {args.total_minutes} minutes, "
          f"{'finished' if finished else 'run the same command again to continue'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
