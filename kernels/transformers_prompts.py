#!/usr/bin/env python3
"""Times prompts that Hugging Face transformers reads in blocks, at Llama-3.2-3B's shape, with and without a policy that
evicts after each block. `kvcast validate gpu_prompts` compares predictions with these times.

    kernels/transformers_prompts.py OUT.json [--seconds 90] [--layers 28] [--device cpu]
    kernels/transformers_prompts.py --plan OUT.json    the same cases without times; needs no PyTorch

Weights and prompts are random, as in transformers_steps.py. A block is a call of the model with the cache of the blocks before it; block
0 is the whole prompt. keydiff and tova then cut the cache of each layer to `budget` tokens, with the operations of
eager_policies.py; keys keep the positions that they had. `attention`: sdpa and eager are those of transformers, which give
blocks after the first an explicit mask; flash is PyTorch's FlashAttention-2 over unequal lengths, without a mask, and is
compared with plain operators before it is timed. TOVA needs attention weights, so that it runs under eager attention alone.
A row has the seconds from the first call until the device is idle (`all_s`, in order: attention may be planned for new lengths
in the first), the seconds until all of it is queued (`host_s`), the time of each block of the first reading by events on the
device (`blocks_s`), the tokens held at the end, and the peak of allocated memory. Two blocks are read before.
Needs PyTorch 2.1, transformers 4.56 and 70 GB of memory; a case that needs more is listed under `errors`, as is any that fails. The
file is written after each case. Exit codes: 0 done, 1 a case failed, 77 no PyTorch or no transformers.
"""
import json
import statistics
import sys
import time

PLAN = '--plan' in sys.argv[1:]
if not PLAN:
    try:
        import torch
        import transformers_steps as steps  # exits if transformers is missing
        from eager_policies import evict, gathered, keydiff_scores, repeated
        from transformers_policies import Layers
    except ImportError as error:
        print(f'nothing was measured: {error}', file=sys.stderr)
        sys.exit(77)

MODEL, LAYERS, BUDGET = 'llama-3.2-3b', 28, 6144
SHAPE = {'vocab_size': 128256, 'hidden_size': 3072, 'intermediate_size': 8192, 'num_attention_heads': 24,
         'num_key_value_heads': 8, 'head_dim': 128}
# Columns: attention, policy, tokens of the prompt, blocks; the cases that decide most come first.
CASES = [('flash', 'keydiff', 16384, [2048, 128, 512, 0]), ('eager', 'tova', 16384, [2048, 128, 512]),
         ('flash', 'full', 16384, [2048, 512, 0, 128]), ('eager', 'keydiff', 16384, [2048, 128]),
         ('sdpa', 'full', 16384, [2048, 512, 0]), ('flash', 'full', 32768, [2048, 0, 512]),
         ('flash', 'keydiff', 32768, [2048, 512]), ('flash', 'full', 8192, [2048, 512, 0, 128]),
         ('eager', 'full', 8192, [2048, 512, 0, 128]), ('sdpa', 'full', 8192, [2048, 512, 0, 128]),
         ('sdpa', 'keydiff', 16384, [2048, 128]), ('flash', 'keydiff', 8192, [2048, 128]),
         ('eager', 'full', 32768, [2048, 512, 0]), ('sdpa', 'full', 32768, [2048, 0]),
         ('flash', 'full', 32768, [128]), ('flash', 'keydiff', 32768, [128])]


def row_of(attention, policy, context, block):
    return {'attention': attention, 'policy': policy, 'batch': 1, 'context': context, 'block': block,
            'budget': 0 if policy == 'full' else BUDGET}


def operators(query, key, value, scale):
    """Causal attention of the last tokens over all of them, operator by operator."""
    key, value = (repeated(x, 1, query.shape[1] // x.shape[1]) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scale
    later = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(key.shape[2] - query.shape[2] + 1)
    return scores.masked_fill(later, -float('inf')).softmax(-1, dtype=torch.float32).to(value.dtype) @ value


def flash(query, key, value, scale):
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True, False, scale=scale)[0]


def checked_flash(device):
    """Returns FlashAttention-2 on a GPU if it agrees with the operators, which take its place on a CPU."""
    if device == 'cpu':
        return operators
    for queries, tokens in ((16, 16), (128, 1000), (1, 77)):
        query, key, value = (torch.randn(1, heads, n, 128, device=device, dtype=torch.bfloat16)
                             for heads, n in ((24, queries), (8, tokens), (8, tokens)))
        off = (flash(query, key, value, 0.1).float() - operators(query.float(), key.float(), value.float(), 0.1)).abs().max()
        if not off < 0.05:
            raise RuntimeError(f'FlashAttention-2 of {queries} queries over {tokens} tokens differs by {off:.3g}')
    return flash


class Run:
    def __init__(self, options, shape=None, dtype=None):
        import transformers
        self.device = options.device
        self.model = steps.make_model(options.layers, shape or SHAPE, self.device, dtype or torch.bfloat16)
        self.result = {**steps.empty_result(options, 'prompts'), 'model': MODEL}
        self.attends = Layers(transformers, self.model)
        self.last_weights = {}  # by layer: the last query's, averaged over the heads
        self.keep_last_weights()

    def keep_last_weights(self):
        module = sys.modules[type(self.model).__module__]
        inner = module.eager_attention_forward

        def forward(layer, *arguments, **named):
            out, weights = inner(layer, *arguments, **named)
            if self.last_weights is not None:
                self.last_weights[layer.layer_idx] = weights[:, :, -1].mean(1)
            return out, weights

        module.eager_attention_forward = forward

    def use(self, attention, policy):
        if policy == 'tova' and attention != 'eager':
            raise ValueError('tova needs attention weights')
        if attention == 'flash':
            attend = checked_flash(self.device)
            self.attends.use(lambda _, *tensors: attend(*tensors))
        else:
            self.attends.use(None)
            self.model.set_attn_implementation(attention)
        self.last_weights = {} if policy == 'tova' else None

    def cut(self, cache, policy, budget):
        """Keeps `budget` tokens of each layer's cache."""
        for index, layer in enumerate(cache.layers if policy != 'full' else []):
            if layer.keys.shape[2] <= budget:
                continue
            if policy == 'keydiff':
                layer.keys, layer.values = evict(keydiff_scores, None, layer.keys, layer.values, None, budget)
            else:
                tokens = self.last_weights[index].topk(budget, -1).indices
                layer.keys, layer.values = gathered(layer.keys, layer.values,
                                                    tokens[:, None].expand(-1, layer.keys.shape[1], -1))

    def mark(self):
        if self.device == 'cpu':
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, first, second):
        return second - first if self.device == 'cpu' else first.elapsed_time(second) / 1e3

    def wait(self):
        if self.device != 'cpu':
            torch.cuda.synchronize()

    def read(self, tokens, policy, block, budget):
        """Returns logits of the last token, the cache, a mark before each block and after the last, and the seconds until
        all of it was queued and done."""
        cache, n = steps.DynamicCache(), tokens.shape[1]
        self.wait()
        begin, marks, logits = time.perf_counter(), [self.mark()], None
        for start in range(0, n, block or n):
            part = tokens[:, start:start + (block or n)]
            positions = torch.arange(start, start + part.shape[1], device=self.device)[None]
            logits = self.model(input_ids=part, past_key_values=cache, position_ids=positions, use_cache=True,
                                logits_to_keep=1).logits
            self.cut(cache, policy, budget)
            marks.append(self.mark())
        host = time.perf_counter() - begin
        self.wait()
        return logits[:, -1], cache, marks, (host, time.perf_counter() - begin)


def measure_prompt(run, attention, policy, context, block):
    row = row_of(attention, policy, context, block)
    run.use(attention, policy)
    tokens = torch.randint(0, run.model.config.vocab_size, (1, context), device=run.device)
    run.read(tokens[:, :2 * block or 256], policy, block, BUDGET)
    if run.device != 'cpu':
        torch.cuda.reset_peak_memory_stats()
    times = []
    while not times or (len(times) < 3 and sum(whole for _, whole in times) < 0.6):
        _, cache, marks, seconds = run.read(tokens, policy, block, BUDGET)
        if not times:
            row['blocks_s'] = [run.seconds_between(*pair) for pair in zip(marks, marks[1:])]
            row['held'] = cache.layers[0].keys.shape[2]
        del cache
        times.append(seconds)
    host, whole = zip(*times)
    run.result['prompts'].append({**row, 'all_s': whole, 'median_s': statistics.median(whole),
                                  'host_s': statistics.median(host),
                                  'peak_bytes': 0 if run.device == 'cpu' else torch.cuda.max_memory_allocated()})


def write_plan(path):
    rows = [{**row_of(*case, block), 'all_s': None} for *case, blocks in CASES for block in blocks]
    with open(path, 'w', encoding='utf-8') as file:
        json.dump({'transformers': '5.17.0', 'device': 'not measured', 'layers': LAYERS, 'model': MODEL, 'prompts': rows,
                   'errors': []}, file, indent=1)


def main():
    if PLAN:
        rest = [argument for argument in sys.argv[1:] if argument != '--plan']
        if len(rest) != 1:
            sys.exit('usage: transformers_prompts.py --plan OUT.json')
        write_plan(rest[0])
        return 0
    options = steps.read_options(__doc__.split('\n\n')[0], seconds=90, layers=LAYERS, device='cuda')
    run = Run(options)
    parts = [(measure_prompt, run, *case, block) for *case, blocks in CASES for block in blocks]
    return steps.run_parts(parts, options, run.result)


if __name__ == '__main__':
    sys.exit(main())
