#!/usr/bin/env python3
"""Times decode steps and prompts of Llama-3.1-8B's shape under Hugging Face transformers on this GPU. The presets
transformers-sdpa and -eager of configs/frameworks are compared with these times.

    kernels/transformers_steps.py OUT.json [--seconds 60] [--layers 32]

Weights and caches are random, because times do not depend on them and nothing has to be downloaded. A step is a call of the model
with one new token per sequence and a DynamicCache of `context` tokens, followed by the argmax of the logits; it ends when the device
is idle. `host_s` is the time until all of it is queued. `generate` has the step time as the difference of calls that generate 2 and
34 tokens, `prefill` whole prompts, `kernels` the longest kernels of a step, and `gemm` the rate of one large product over time as
[seconds, TFLOP/s].
Needs PyTorch 2, transformers and 50 GB of memory. The file is written after each part. Exit codes: 0 done, 1 a part failed (listed
under `errors`), 77 no PyTorch or no transformers.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time

try:
    import torch
    import transformers
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
except ImportError as error:
    print(f'nothing was measured: {error}', file=sys.stderr)
    sys.exit(77)

KV_HEADS, HEAD_DIM, VOCABULARY = 8, 128, 128256
LLAMA_8B = {'vocab_size': VOCABULARY, 'hidden_size': 4096, 'intermediate_size': 14336, 'num_attention_heads': 32,
            'num_key_value_heads': KV_HEADS}
# Columns: attention implementation, sequences, context, whether kernels are listed.
STEPS = [('sdpa', 1, 1024, True), ('sdpa', 1, 32768, True), ('sdpa', 1, 131072, False), ('eager', 1, 1024, True),
         ('eager', 1, 32768, True), ('sdpa', 8, 32768, True), ('sdpa', 1, 8192, False), ('eager', 1, 131072, False),
         ('sdpa', 8, 4096, False), ('eager', 8, 4096, False), ('sdpa', 1, 65536, False), ('eager', 8, 16384, False),
         ('sdpa', 32, 4096, False)]
PROMPTS = [4096, 16384, 32768, 65536]


def make_model(layers, shape=LLAMA_8B, device='cuda', dtype=torch.bfloat16):
    config = LlamaConfig(**shape, num_hidden_layers=layers, max_position_embeddings=140000, rms_norm_eps=1e-5,
                         rope_theta=500000.0, tie_word_embeddings=False)
    torch.manual_seed(1)
    torch.set_default_dtype(dtype)
    with torch.device(device) if device != 'cpu' else contextlib.nullcontext():
        model = LlamaForCausalLM._from_config(config, attn_implementation='sdpa').eval()
    torch.set_default_dtype(torch.float32)
    return model.requires_grad_(False)


def filled_cache(layers, batch, context):
    cache = DynamicCache()
    for layer in range(layers):
        keys = torch.randn(batch, KV_HEADS, context, HEAD_DIM, device='cuda', dtype=torch.bfloat16)
        cache.update(keys, torch.randn_like(keys), layer)
    return cache


def tokens_of(batch, n):
    return torch.randint(0, VOCABULARY, (batch, n), device='cuda')


def seconds_of(call):
    """Returns the seconds until the call has returned, and until the device is idle."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    queued = time.perf_counter()
    torch.cuda.synchronize()
    return queued - begin, time.perf_counter() - begin


def longest_kernels(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    rows = [(event.key[:110], event.count, event.self_device_time_total) for event in profile.key_averages()
            if event.device_type == torch.autograd.DeviceType.CUDA and event.self_device_time_total > 0]
    return sorted(rows, key=lambda row: -row[2])[:18]


def measure_steps(run, attention, batch, context, listed, count=8):
    run.model.set_attn_implementation(attention)
    cache, token = filled_cache(run.model.config.num_hidden_layers, batch, context), tokens_of(batch, 1)

    def step():
        run.model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)

    for _ in range(3):
        step()
    host, whole = zip(*(seconds_of(step) for _ in range(count)))
    row = {'attention': attention, 'batch': batch, 'context': context}
    run.result['steps'].append({**row, 'median_s': statistics.median(whole), 'min_s': min(whole), 'max_s': max(whole),
                                'host_s': statistics.median(host)})
    if listed:
        run.result['kernels'].append({**row, 'kernels': longest_kernels(step)})


def measure_prompt(run, attention, batch, context):
    run.model.set_attn_implementation(attention)
    tokens = tokens_of(batch, context)
    times = [seconds_of(lambda: run.model(input_ids=tokens, use_cache=True, logits_to_keep=1))[1] for _ in range(3)]
    run.result['prefill'].append({'attention': attention, 'batch': batch, 'context': context, 'all_s': times})


def measure_generate(run, attention, batch, context):
    run.model.set_attn_implementation(attention)
    tokens = tokens_of(batch, context)

    def generate(new):
        return seconds_of(lambda: run.model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new,
                                                     min_new_tokens=new, do_sample=False, pad_token_id=0))[1]

    generate(2)
    few, many = generate(2), generate(34)
    run.result['generate'].append({'attention': attention, 'batch': batch, 'context': context, 'step_s': (many - few) / 32,
                                   'first_s': few})


def measure_product(run, n, seconds):
    a, b = (torch.randn(n, n, device='cuda', dtype=torch.bfloat16) for _ in range(2))
    out = a @ b
    torch.cuda.synchronize()
    time.sleep(1.5)  # lets the board cool down
    begin, rates = time.perf_counter(), []
    while time.perf_counter() - begin < seconds:
        took = seconds_of(lambda: [torch.matmul(a, b, out=out) for _ in range(20)])[1]
        rates.append((round(time.perf_counter() - begin, 3), round(20 * 2 * n ** 3 / took / 1e12, 1)))
    run.result['gemm'].append({'n': n, 'tflops': rates[::max(1, len(rates) // 60)]})


def read_options(description, seconds=60, layers=32, **flags):
    """`flags` are further options by name, each with its default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('out', help='the results file (JSON)')
    parser.add_argument('--seconds', type=float, default=seconds, help='no part starts later than this')
    parser.add_argument('--layers', type=int, default=layers)
    for flag, default in flags.items():
        parser.add_argument('--' + flag, default=default)
    options = parser.parse_args()
    options.end = time.monotonic() + options.seconds
    return options


def empty_result(options, *lists):
    return {'torch': torch.__version__, 'transformers': transformers.__version__, 'cuda': torch.version.cuda,
            'device': torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU', 'layers': options.layers, **{name: [] for name in lists}, 'errors': []}


def run_parts(parts, options, result, clean_up=lambda: None):
    """Calls each part, a function with its arguments, and writes the result after each of them. Returns the exit code."""
    for part, *arguments in parts:
        named = f'{part.__name__} {tuple(arguments[1:])}'  # the first argument is the same for all parts
        if time.monotonic() > options.end:
            result['errors'].append(f'{named}: no time was left')
            continue
        try:
            part(*arguments)
        except Exception as error:  # out of memory, or the interface of another release; other parts do not depend on it
            result['errors'].append(f'{named}: {type(error).__name__}: {(str(error).splitlines() or [""])[0]}')
        clean_up()
        torch.cuda.empty_cache()
        with open(options.out, 'w', encoding='utf-8') as file:
            json.dump(result, file, indent=1)
    print('\n'.join(result['errors']) or f'{len(parts)} parts measured')
    return 1 if result['errors'] else 0


class Run:
    def __init__(self, options):
        self.model = make_model(options.layers)
        self.result = empty_result(options, 'steps', 'generate', 'prefill', 'kernels', 'gemm')


def main():
    options = read_options(__doc__.split('\n\n')[0])
    run = Run(options)
    parts = [(measure_steps, run, *case) for case in STEPS]
    parts += [(measure_generate, run, 'sdpa', 1, 1024)]
    parts += [(measure_prompt, run, 'sdpa', 1, context) for context in PROMPTS]
    parts += [(measure_generate, run, 'sdpa', 8, 2048), (measure_product, run, 8192, 7)]
    return run_parts(parts, options, run.result)


if __name__ == '__main__':
    sys.exit(main())
