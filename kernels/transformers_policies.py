#!/usr/bin/env python3
"""Times decode steps and prompts of Llama-3.1-8B's shape under Hugging Face transformers with KV-cache policies in plain PyTorch
operations, as in research code. Predictions of policies in eager frameworks are compared with these times.

    kernels/transformers_policies.py OUT.json [--seconds 60] [--layers 32]

Random weights, random caches and the definition of a step are those of transformers_steps.py. Policies (eager_policies.py) are
attention functions registered with transformers, so that a step includes everything around them. Names and parameters are those
of kvcast. `held` counts the tokens in the cache, including the new one. A policy's cache is reset to its first tensors between
steps, so that `held` is constant and Quest's pages are full; with `grows` it is not. `full` over 2048 tokens is also the decode
step of snapkv and keydiff with that budget. `scoring` has the work of one layer after a prompt: `median_s` on the device, `wall_s`
including the host. `launches` counts the kernels and copies of one step.
Needs PyTorch 2.5, transformers 4.56 and 65 GB of memory. The file is written after each part. Exit codes: 0 done, 1 a part failed
(listed under `errors`), 77 no PyTorch or no transformers.
"""
import statistics
import sys

try:
    import torch
    from eager_policies import SCORERS, attention, evict, held_of, policy_of
except ImportError as error:
    print(f'nothing was measured: {error}', file=sys.stderr)
    sys.exit(77)

BUDGETS = {'quest': 1024, 'sparq': 1024, 'exact_topk': 1024, 'hsa': 2048, 'rocketkv': 2048}  # hsa attends to half of its budget
SCORED = 2048  # budget of snapkv and keydiff
# Columns: policy, sequences, context, whether the cache grows from step to step.
STEPS = [('full', 1, 32768, True), ('quest', 1, 32768, False), ('hsa', 1, 32768, False), ('sparq', 1, 32768, False),
         ('exact_topk', 1, 32768, False), ('full', 1, 2048, True), ('quest', 8, 32768, False), ('rocketkv', 1, 32768, False),
         ('hsa', 8, 32768, False), ('full', 8, 32768, True), ('quest', 1, 4096, False), ('hsa', 1, 4096, False),
         ('full', 1, 4096, True)]
MORE_STEPS = [('quest', 1, 131072, False), ('hsa', 1, 131072, False), ('rocketkv', 1, 131072, False), ('full', 1, 131072, True),
              ('rocketkv', 8, 32768, False), ('quest', 1, 32768, True), ('full', 1, 32768, False), ('sparq', 1, 4096, False),
              ('exact_topk', 1, 4096, False), ('sparq', 8, 32768, False), ('full', 8, 2048, True),
              ('exact_topk', 8, 32768, False)]
PROMPTS = [32768, 16384]


class Layers:
    """The attention function that all layers call; it forwards to `apply` of the part that is being measured."""

    def __init__(self, transformers, model):
        self.apply, self.calls, self.model, self.name = None, 0, model, 'kvcast_policy'
        try:
            transformers.AttentionInterface.register(self.name, self.attend)
            model.set_attn_implementation(self.name)
        except Exception:  # other releases: replace the function that LlamaAttention.forward calls directly
            sys.modules['transformers.models.llama.modeling_llama'].eager_attention_forward = self.attend
            self.name = 'eager'

    def attend(self, module, query, key, value, attention_mask=None, scaling=None, **_):
        self.calls += 1
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return self.apply(module.layer_idx, query, key, value, scale).transpose(1, 2).contiguous(), None

    def use(self, apply):
        self.apply, self.calls = apply, 0
        self.model.set_attn_implementation('sdpa' if apply is None else self.name)


def make_step(run, policy, batch, context, grows):
    """Returns one decode step as a call, a call that undoes its growth, and the row that describes it."""
    layers, budget = run.model.config.num_hidden_layers, BUDGETS.get(policy, context)
    held = held_of(policy, context, budget)
    cache, token = run.steps.filled_cache(layers, batch, held - 1), run.steps.tokens_of(batch, 1)
    row = {'policy': policy, 'batch': batch, 'context': context, 'budget': budget, 'held': held, 'grows': grows, 'parameters': {}}
    # Truncating the cache instead would leave views, which torch.cat copies element by element.
    first = [(layer.keys, layer.values) for layer in cache.layers]
    states = []
    for key, value in first if policy != 'full' else []:
        function, row['parameters'], state = policy_of(policy, key, value, budget, held)
        states.append(state)
    run.attends.use(None if policy == 'full' else lambda i, *tensors: function(*tensors, budget, **states[i]))

    def step():
        run.model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)

    def undo():
        for layer, (key, value) in zip(cache.layers, first):
            layer.keys, layer.values = key, value

    return step, (lambda: None) if grows else undo, row


def spread(samples):
    return {'median_s': statistics.median(samples), 'min_s': min(samples), 'max_s': max(samples), 'samples': len(samples)}


def measure_step(run, *case):
    step, undo, row = make_step(run, *case)
    times = []
    for _ in range(14):
        times.append(run.steps.seconds_of(step))
        undo()
    if row['policy'] != 'full' and run.attends.calls != 14 * run.model.config.num_hidden_layers:
        raise RuntimeError(f'{run.attends.calls} calls of the policy: transformers uses another attention function')
    host, whole = zip(*times[3:])
    run.result['steps'].append({**row, **spread(whole), 'host_s': statistics.median(host)})


def count_launches(run, *case):
    step, undo, row = make_step(run, *case)
    for _ in range(2):
        step()
        undo()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    on_device = [event for event in profile.key_averages() if event.device_type == torch.autograd.DeviceType.CUDA]
    run.result['launches'].append({**row, 'launches': sum(event.count for event in on_device)})


def measure_prompt(run, policy, context):
    kept, tokens = [], run.steps.tokens_of(1, context)

    def attend(_, query, key, value, scale):
        kept.append(evict(SCORERS[policy], query, key, value, scale, SCORED))
        return attention(query, key, value, scale, causal=True)

    def prompt():
        kept.clear()
        run.model(input_ids=tokens, use_cache=True, logits_to_keep=1)

    run.attends.use(None if policy == 'full' else attend)
    prompt()
    host, whole = zip(*(run.steps.seconds_of(prompt) for _ in range(2)))
    run.result['prompts'].append({'policy': policy, 'batch': 1, 'context': context, 'budget': SCORED, 'parameters': {},
                                  **spread(whole), 'host_s': statistics.median(host)})


def measure_scoring(run, policy, context):
    heads, kv_heads = run.model.config.num_attention_heads, run.model.config.num_key_value_heads
    query, key, value = (torch.randn(1, n, context, 128, device='cuda', dtype=torch.bfloat16)
                         for n in (heads, kv_heads, kv_heads))
    device, wall = [], []
    for _ in range(25):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

        def scored(begin=events[0], end=events[1]):
            begin.record()
            evict(SCORERS[policy], query, key, value, 128 ** -0.5, SCORED)
            end.record()

        wall.append(run.steps.seconds_of(scored)[1])
        device.append(events[0].elapsed_time(events[1]) / 1e3)
    run.result['scoring'].append({'policy': policy, 'batch': 1, 'context': context, 'budget': SCORED, 'parameters': {},
                                  **spread(device[5:]), 'wall_s': statistics.median(wall[5:])})


class Run:
    def __init__(self, steps, options):
        import transformers
        self.steps, self.model = steps, steps.make_model(options.layers)
        self.result = steps.empty_result(options, 'steps', 'scoring', 'prompts', 'launches')
        self.attends = Layers(transformers, self.model)
        self.result['attention_interface'] = self.attends.name

    def release_tensors(self):
        self.attends.apply = None


def main():
    import transformers_steps as steps  # exits if transformers is missing
    options = steps.read_options(__doc__.split('\n\n')[0])
    run = Run(steps, options)
    parts = [(measure_step, run, *case) for case in STEPS]
    parts += [(measure_scoring, run, policy, context) for context in PROMPTS for policy in SCORERS]
    parts += [(measure_prompt, run, policy, context) for context in PROMPTS for policy in ('full', *SCORERS)]
    parts += [(measure_step, run, *case) for case in MORE_STEPS]
    # Launches are counted last, because a profiler may slow launches down for the rest of a process.
    parts += [(count_launches, run, policy, 1, 32768, False) for policy in ('full', *BUDGETS)]
    return steps.run_parts(parts, options, run.result, clean_up=run.release_tensors)


if __name__ == '__main__':
    sys.exit(main())
