#!/usr/bin/env python3
"""Predicts scores where none are published and checks their invariants. It takes minutes, so no test runs it.

    tests/sweep/accuracy.py build/kvcast --models LongChat-7B-v1.5-32K,Yi-9B-200K --contexts 4K,64K --tasks single2,vt

Checks every method of a paper, at every budget and at one that covers all tokens: no refusal, scores between 0 and 100
and inside their intervals, a larger budget never worse by more than --tolerance points, the full score with all tokens.
Prints one line per violation; the exit status is 1 if there are any.
"""
import argparse
import csv
import itertools
import json
import subprocess
import sys
import tempfile

METHODS = {
    "RocketKV": ["Exact-TopK", "DuoAttention", "SnapKV", "Quest", "SparQ", "HSA", "RocketKV"],
    "CTkvr": ["SnapKV", "Quest", "Flat (exact KNN)", "CTkvr", "ShadowKV", "RetrievalAttention", "MagicPIG",
              "SqueezedAttention"],
    "CompressKV": ["StreamingLLM", "SnapKV", "PyramidKV", "CAKE", "HeadKV(GQA)", "AdaKV(GQA)", "CompressKV",
                   "AdaCompressKV", "HeadCompressKV"],
    "KeyDiff": ["TOVA", "SnapKV", "KeyDiff", "KeyDiff + 20% Recent Tokens", "KeyL2Norm", "Sink", "H2O"],
    "FreeKV": ["FreeKV", "Quest", "ArkVale", "RaaS", "RazorAttention", "ShadowKV"],
}
WITHOUT_BUDGET = {"MagicPIG", "SqueezedAttention", "RazorAttention"}
TASKS = ("single1,single2,single3,multikey1,multikey2,multikey3,multivalue,multiquery,vt,cwe,fwe,qa-1,qa-2")
COLUMNS = ["paper", "table", "model", "benchmark", "context", "task", "method", "budget", "budget_unit", "value"]


def write_table(path, options):
    with open(path, "w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(COLUMNS)
        chosen = itertools.product(options.papers.split(","), options.models.split(","), options.contexts.split(","),
                                   options.tasks.split(","))
        for paper, model, context, task in chosen:
            place = [paper, "sweep", model, "RULER", context, task]
            rows.writerow(place + ["Full-KV", "full", "tokens", 100])
            everything = 8 * 1024 * int(context[:-1])  # enough even if a budget is divided by the heads of a group
            for method, budget in itertools.product(METHODS[paper], options.budgets.split(",") + [everything]):
                rows.writerow(place + [method, budget, "tokens", 50])


def faults(cells, tolerance):
    curves = {}
    for cell in cells:
        place = ", ".join(cell[key] for key in ("paper", "model", "context", "task", "method"))
        if "refused" in cell:
            yield f"{place}, {cell['budget']}: refused: {cell['refused']}"
            continue
        low, high = cell["interval"]
        if not 0 <= low <= cell["predicted"] <= high <= 100:
            yield f"{place}, {cell['budget']}: {cell['predicted']} in {low} to {high}"
        curves.setdefault((place, cell["method"]), []).append((int(cell["budget"]), cell["predicted"]))
    for (place, method), curve in curves.items():
        curve.sort()
        for (small, before), (large, after) in itertools.pairwise(curve):
            if after < before - tolerance:
                yield f"{place}: {before} with {small} tokens, {after} with {large}"
        if method not in WITHOUT_BUDGET and curve[-1][1] < 99.9:
            yield f"{place}: {curve[-1][1]} with all tokens"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcast")
    parser.add_argument("--models", default="LongChat-7B-v1.5-32K,Mistral-7B-Ins-v0.2,Yi-9B-200K,Qwen2.5-7B-Instruct,"
                                            "Llama-3.2-3B-Instruct")
    parser.add_argument("--contexts", default="4K,8K")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--papers", default=",".join(METHODS))
    parser.add_argument("--budgets", default="512,2048")
    parser.add_argument("--tolerance", type=float, default=6)
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".csv") as table:
        write_table(table.name, options)
        command = [options.kvcast, "validate", "accuracy", "--published", table.name, "--seeds", "1", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    found = list(faults(result["cells"], options.tolerance))
    print(*found, f"{result['n']} scores, {len(found)} violations", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
