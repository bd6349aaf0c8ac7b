"""Checks that prompts read in blocks give the logits of whole prompts, and that policies keep the tokens that they should."""
import json
import os
import subprocess
import sys
import tempfile
import types

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'kernels')
SCRIPT = os.path.join(KERNELS, 'transformers_prompts.py')
sys.path.insert(0, KERNELS)

with tempfile.TemporaryDirectory() as folder:
    plan = os.path.join(folder, 'plan.json')
    subprocess.run([sys.executable, SCRIPT, '--plan', plan], check=True)
    with open(plan, encoding='utf-8') as file:
        rows = json.load(file)['prompts']
assert len(rows) == len({tuple(row.values()) for row in rows}), 'a case is planned twice'
decisive = {(row['attention'], row['policy'], row['block']) for row in rows if row['context'] == 16384}
assert {('flash', 'keydiff', 128), ('flash', 'keydiff', 2048), ('eager', 'tova', 128), ('eager', 'tova', 2048)} <= decisive

try:
    import torch
except ImportError:
    print('no PyTorch: only the plan was checked')
    sys.exit(77)
import small_transformers

small_transformers.provide()
import transformers_prompts as prompts

SMALL = {'vocab_size': 97, 'hidden_size': 48, 'intermediate_size': 64, 'num_attention_heads': 6, 'num_key_value_heads': 2,
         'head_dim': 8}
TOKENS, BUDGET = 37, 12
with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, 'out.json')
    options = types.SimpleNamespace(out=out, layers=3, device='cpu', end=float('inf'))
    run = prompts.Run(options, SMALL, torch.float32)
    ids = torch.randint(0, 97, (1, TOKENS))


    def read(attention, policy, block, budget=BUDGET, n=TOKENS):
        run.use(attention, policy)
        return run.read(ids[:, :n], policy, block, budget)


    whole, full, *_ = read('eager', 'full', 0)
    for attention in ('flash', 'sdpa', 'eager'):
        for block in (1, 5, 16, 0):
            logits, cache, marks, (host, seconds) = read(attention, 'full', block)
            assert torch.allclose(logits, whole, atol=1e-4), (attention, block)
            assert cache.layers[2].keys.shape[2] == TOKENS and len(marks) == -(-TOKENS // (block or TOKENS)) + 1
            assert host <= seconds

    # One block over the budget: the tokens whose keys are least similar to the mean direction stay, in each KV head.
    cache = read('flash', 'keydiff', 0)[1]
    for head in range(2):
        keys = full.layers[0].keys[0, head].double()
        unit = keys / keys.norm(dim=1, keepdim=True)
        mean = unit.mean(0)
        order = sorted(range(TOKENS), key=lambda t: float(unit[t] @ mean / mean.norm()))[:BUDGET]
        kept = {tuple(row) for row in cache.layers[0].keys[0, head].tolist()}
        assert kept == {tuple(full.layers[0].keys[0, head, t].tolist()) for t in order}

    # Query of the first layer, from which the weights of its last token follow.
    seen = []
    run.attends.use(lambda layer, *tensors: seen.append(tensors) or prompts.operators(*tensors))
    run.read(ids, 'full', 0, BUDGET)
    query, key, _, scale = seen[0]
    weights = torch.stack([(query[0, h, -1] @ key[0, h // 3].T * scale).softmax(0) for h in range(6)]).mean(0)
    cache = read('eager', 'tova', 0)[1]
    for head in range(2):
        kept = {tuple(row) for row in cache.layers[0].keys[0, head].tolist()}
        assert kept == {tuple(key[0, head, t].tolist()) for t in weights.topk(BUDGET).indices.tolist()}

    # Blocks after the first see what was kept of those before it; a cache below the budget is not cut.
    for attention, policy in (('flash', 'keydiff'), ('sdpa', 'keydiff'), ('eager', 'tova')):
        cut = read(attention, policy, 5)
        assert all(layer.keys.shape == layer.values.shape == (1, 2, BUDGET, 8) for layer in cut[1].layers)
        assert not torch.allclose(cut[0], whole, atol=1e-4)
        assert torch.allclose(read(attention, policy, 5, budget=TOKENS)[0], whole, atol=1e-4)
    assert torch.allclose(read('flash', 'keydiff', 5)[0], read('eager', 'keydiff', 5)[0], atol=1e-4)

    prompts.BUDGET = BUDGET
    parts = [(prompts.measure_prompt, run, *case) for case in (('flash', 'keydiff', TOKENS, 5), ('flash', 'tova', TOKENS, 5),
                                                               ('eager', 'tova', TOKENS, 0))]
    assert prompts.steps.run_parts(parts, options, run.result) == 1
    with open(out, encoding='utf-8') as file:
        result = json.load(file)
assert [(row['block'], row['held'], len(row['blocks_s'])) for row in result['prompts']] == [(5, 12, 8), (0, 12, 1)]
assert len(result['errors']) == 1 and 'weights' in result['errors'][0] and result['model'] == 'llama-3.2-3b'
print('blocks give the logits of whole prompts, and policies keep the right tokens')
