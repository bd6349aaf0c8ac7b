#!/usr/bin/env python3
"""Times requests in a closed loop through the continuous batching of Hugging Face transformers, at Llama-3.2-3B's shape.

    kernels/transformers_serving.py OUT.json [--seconds 60] [--layers 28] [--device cpu]

As many requests as `concurrency` says are in flight: when one ends, the next is sent. Weights and prompts are random, answers
have a fixed length, and no two prompts share a prefix. Attention is transformers' paged sdpa, launched without CUDA graphs and
without overlap of steps, so that each step of the log is one pass. A request has the seconds from when it was sent to its first
token, and the times of all its tokens after that. `steps` has each step's begin and end, `scheduler` the lines that the scheduler
logs, all in seconds from the start of the loop. The first requests warm up and are not listed.
Needs PyTorch 2.5, transformers 5 and 40 GB of memory. The file is written after each loop. Exit codes: 0 done, 1 a loop failed (listed
under `errors`), 77 no PyTorch or no transformers.
"""
import logging
import os
import statistics
import sys
import time

try:
    import torch
    import transformers_steps as steps  # exits if transformers is missing
    from transformers_prompts import MODEL, SHAPE
except ImportError as error:
    print(f'nothing was measured: {error}', file=sys.stderr)
    sys.exit(77)

LAYERS, PROMPT, ANSWER, BLOCKS, BLOCK_TOKENS = 28, 512, 32, 512, 256
# Columns: requests in flight, requests in all.
LOOPS = [(1, 4), (8, 24), (64, 128), (4, 12), (16, 48), (32, 64)]


class Lines(logging.Handler):
    """Keeps what the scheduler logs, with the time of each line."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []
        logger = logging.getLogger('ContinuousBatchingLogger')
        logger.setLevel(logging.DEBUG)
        logger.propagate, logger.handlers = False, [self]

    def emit(self, record):
        self.lines.append((time.perf_counter(), record.getMessage()))


class Run:
    def __init__(self, options, shape=None, dtype=None):
        self.model = steps.make_model(options.layers, shape or SHAPE, options.device, dtype or torch.bfloat16)
        self.result = {**steps.empty_result(options, 'loops'), 'model': MODEL, 'prompt_tokens': PROMPT, 'answer_tokens': ANSWER}
        self.end, self.manager, self.steps, self.sent, self.scheduler = options.end, None, [], 0, None
        self.warm = False

    def start(self):
        from transformers import GenerationConfig
        from transformers.generation import ContinuousBatchingConfig
        config = ContinuousBatchingConfig(block_size=BLOCK_TOKENS, num_blocks=BLOCKS, max_batch_tokens=4096,
                                          allow_block_sharing=False, use_async_batching=False, use_cuda_graph=False)
        self.watch(self.model.init_continuous_batching(
            generation_config=GenerationConfig(max_new_tokens=ANSWER, do_sample=False, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=config))

    def watch(self, manager):
        self.manager, inner = manager, manager._generation_step

        def step():
            begin = time.perf_counter()
            inner()
            self.steps.append((begin, time.perf_counter()))

        self.manager._generation_step = step
        self.scheduler = Lines()
        self.manager.start()

    def send(self):
        tokens = torch.randint(1, self.model.config.vocab_size, (PROMPT,)).tolist()
        self.sent += 1
        self.manager.add_request(tokens, request_id=f'kvcast_{self.sent}', max_new_tokens=ANSWER, record_timestamps=True)

    def loop(self, concurrency, count):
        """Returns the outputs of `count` requests in the order in which they ended."""
        done, sent, before = [], min(concurrency, count), self.sent
        for _ in range(sent):
            self.send()
        while len(done) < count:
            if time.monotonic() > self.end or not self.manager.is_running():
                raise TimeoutError(f'{len(done)} of {count} requests ended')
            output = self.manager.get_result(timeout=0.2)
            if output is None or int(output.request_id.split('_')[1]) <= before:  # of another loop
                continue
            if output.error:
                raise RuntimeError(output.error)
            if len(output.generated_tokens) < ANSWER:
                continue
            done.append(output)
            if sent < count:
                self.send()
                sent += 1
        return done


def measure_loop(run, concurrency, count):
    try:
        if not run.warm:
            run.start()
            run.loop(2, 2)
            run.warm = True
        add_loop(run, concurrency, count)
    except Exception:
        # Its requests may still run: the next loop has a manager of its own, and warms up again.
        run.warm = False
        if run.manager is not None:
            run.manager.stop(block=False)
        raise


def add_loop(run, concurrency, count):
    run.steps.clear()
    run.scheduler.lines.clear()
    begin = time.perf_counter()
    requests = [{'sent_s': output.created_time - begin, 'first_token_s': output.timestamps[0] - output.created_time,
                 'tokens_s': [stamp - output.timestamps[0] for stamp in output.timestamps[1:]]}
                for output in run.loop(concurrency, count)]
    run.result['loops'].append({
        'concurrency': concurrency, 'requests': requests, 'whole_s': time.perf_counter() - begin,
        'ttft_s': statistics.median(request['first_token_s'] for request in requests),
        'tpot_s': statistics.median(request['tokens_s'][-1] / len(request['tokens_s']) for request in requests),
        'steps': [(start - begin, end - begin) for start, end in run.steps],
        'scheduler': [(at - begin, line) for at, line in run.scheduler.lines]})


def main():
    options = steps.read_options(__doc__.split('\n\n')[0], layers=LAYERS, device='cuda')
    run = Run(options)
    code = steps.run_parts([(measure_loop, run, *case) for case in LOOPS], options, run.result)
    sys.stdout.flush()
    os._exit(code)  # the manager's thread may wait for requests for ever


if __name__ == '__main__':
    main()
