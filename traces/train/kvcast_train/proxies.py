"""Computes kvcast's proxies for every row of a table of true accuracies, from traces of the same tasks. Needs only the standard
library.

python3 -m kvcast_train.proxies TABLE.csv TRACES OUT.csv --kvcast build/kvcast [--profile P.yaml]"""

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, Sequence

from .grid import WITH_PROFILE

KEY = ("task", "context", "policy", "parameters")


def numbers(answer: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numeric leaves of a JSON object with their keys joined by dots."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from numbers(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(answer, (int, float)) and not isinstance(answer, bool):
        yield prefix, float(answer)


def command(kvcast: str, trace: Path, policy: str, parameters: dict[str, Any]) -> list[str]:
    out = [kvcast, "replay", "--trace", str(trace), "--policy", policy, "--json"]
    for key, value in parameters.items():
        out += ["--set", f"{key}={json.dumps(value) if isinstance(value, bool) else value}"]
    return out


def traces_of(folder: Path) -> dict[tuple[str, str], list[Path]]:
    """Returns the traces by task and context, which are taken from the file names."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        if match := re.fullmatch(r"(\w+)-(\d+)-\d+", path.stem):
            found.setdefault((match[1], match[2]), []).append(path)
    return found


def read_rows(path: Path) -> list[dict[str, str]]:
    """Reads the rows of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(table: Path, traces: Path, out: Path, kvcast: str, profile: str | None) -> int:
    """Appends the missing rows, one per trace and row of the table; returns their number."""
    rows = read_rows(table)
    there = read_rows(out) if out.exists() else []
    done = {(*(row[key] for key in KEY), row["trace"]) for row in there}
    added, by_task = 0, traces_of(traces)
    for row in rows:
        if row["refused"]:
            continue
        parameters = json.loads(row["parameters"])
        if row["policy"] in WITH_PROFILE:
            parameters["profile"] = profile
        for trace in by_task.get((row["task"], row["context"]), []):
            key = (*(row[key] for key in KEY), trace.name)
            if key in done:
                continue
            answer = subprocess.run(command(kvcast, trace, row["policy"], parameters), capture_output=True, text=True)
            if answer.returncode != 0:
                print(f"{trace.name}, {row['policy']} {row['parameters']}: {answer.stderr.strip()}", file=sys.stderr)
                continue
            new = {**dict(zip((*KEY, "trace"), key)), **dict(numbers(json.loads(answer.stdout)))}
            with open(out, "a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, there[0].keys() if there else new.keys(), extrasaction="ignore", restval="")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(new)
            there.append(new)
            added += 1
    return added


def main(arguments: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="kvcast_train.proxies", description="Computes kvcast's proxies for the rows of a table.")
    p.add_argument("table", type=Path)
    p.add_argument("traces", type=Path)
    p.add_argument("out", type=Path)
    p.add_argument("--kvcast", default="build/kvcast")
    p.add_argument("--profile")
    args = p.parse_args(arguments)
    print(f"{args.out}: {run(args.table, args.traces, args.out, args.kvcast, args.profile)} rows added")
    return 0


if __name__ == "__main__":
    sys.exit(main())
