"""Command line: python3 -m kvcast_capture --model MODEL --prompt FILE --out TRACE.safetensors"""

import argparse
import json
import sys
from pathlib import Path
from typing import Sequence

from .drive import capture, check_targets, read_targets, read_text, read_tokens
from .errors import CaptureError
from .plan import DTYPES, Plan, parse_ids


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="kvcast_capture", description="Captures an attention trace of a Hugging Face decoder.")
    p.add_argument("--model", required=True, help="the model's folder, or its name on the hub")
    p.add_argument("--name", help="the model's name in configs/models (default: the last part of --model)")
    text = p.add_mutually_exclusive_group(required=True)
    text.add_argument("--prompt", type=Path, help="a text file")
    text.add_argument("--tokens", type=Path, help="a JSON list of token ids")
    p.add_argument("--out", type=Path, required=True, help="the trace to write")
    p.add_argument("--layers", default="every:8", help="all, every:N, or numbers and ranges: 0,13,20--1 (default every:8)")
    p.add_argument("--kv-heads", default="all", help="KV heads in the same form; their query heads are included (default all)")
    p.add_argument("--window", default="128", help="number of last prompt queries to keep, or all (default 128)")
    p.add_argument("--decode-steps", type=int, default=64, help="number of decode steps (default 64)")
    p.add_argument("--block", type=int, default=4096, help="prompt tokens fed per forward pass (default 4096)")
    p.add_argument("--dtype", default="bf16", choices=tuple(DTYPES), help="data type of model and trace (default bf16)")
    p.add_argument("--device", default="cuda", help="PyTorch device (default cuda)")
    p.add_argument("--hidden", action="store_true", help="keep the inputs of the attention blocks at the query positions")
    p.add_argument("--continuation", type=Path, help="a JSON list of token ids to feed instead of the greedy ones")
    p.add_argument("--task", help="name of the prompt's task")
    p.add_argument("--targets", type=Path, help="JSON: for every decode step, the positions that it must be able to read")
    p.add_argument("--work", type=Path, help="working folder, from which an interrupted capture resumes (default: OUT.work)")
    return p


def optional_metadata(args: argparse.Namespace, versions: str, targets: list[list[int]] | None) -> dict[str, str]:
    name = args.name or Path(args.model.rstrip("/")).name
    metadata = {"model": name, "provenance": f"kvcast_capture: {args.model}, {args.dtype}, {args.device}, "
                                              f"blocks of {args.block}, {versions}"}
    if args.task:
        metadata["task"] = args.task
    if targets is not None:
        metadata["targets"] = json.dumps(targets)
    return metadata


def run(args: argparse.Namespace) -> None:
    # All files are read before the model, which takes minutes to load.
    text = read_text(args.prompt) if args.prompt else ""
    prompt = read_tokens(args.tokens) if args.tokens else []
    continuation = read_tokens(args.continuation) if args.continuation else None
    targets = read_targets(args.targets, args.decode_steps) if args.targets else None
    from . import hugging_face

    decoder, tokenizer, versions = hugging_face.load(args.model, args.dtype, args.device, args.hidden)
    if args.prompt and tokenizer is None:
        raise CaptureError(f"{args.model} has no tokenizer: pass --tokens")
    if args.prompt:
        prompt = list(tokenizer(text)["input_ids"])
    check_targets(targets or [], len(prompt))
    largest = max([*prompt, *(continuation or [])], default=0)
    if decoder.vocabulary is not None and largest >= decoder.vocabulary:
        raise CaptureError(f"token {largest} is outside the vocabulary of {args.model}, 0 .. {decoder.vocabulary - 1}")
    shape = decoder.shape
    try:
        window = len(prompt) if args.window == "all" else min(int(args.window), len(prompt))
    except ValueError as error:
        raise CaptureError(f"window: found {args.window!r}; known: all, a number of tokens") from error
    plan = Plan(shape=shape, layers=parse_ids("layers", args.layers, shape.n_layers),
                kv_heads=parse_ids("kv-heads", args.kv_heads, shape.n_kv_heads), prompt_tokens=len(prompt),
                decode_steps=args.decode_steps, window=window, block=args.block, dtype=args.dtype, hidden=args.hidden)

    def progress(done: int, of: int) -> None:
        print(f"\r{done} of {of} positions", end="" if done < of else "\n", file=sys.stderr, flush=True)

    work = args.work or args.out.with_name(args.out.name + ".work")
    capture(decoder, plan, prompt, args.out, work, optional_metadata(args, versions, targets), continuation, progress,
            f"{args.model} ({decoder.weights()})")


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        run(args)
    except CaptureError as error:
        print(f"kvcast_capture: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"kvcast_capture: PyTorch is required: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
