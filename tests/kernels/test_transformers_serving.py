"""Checks that a closed loop keeps its requests in flight, and what is written of them; a manager that answers at once takes the place
of transformers'. Skipped without PyTorch."""
import logging
import os
import sys
import time
import types

try:
    import torch
except ImportError:
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'kernels'))
import small_transformers

small_transformers.provide()
import transformers_serving as serving


class Manager:
    """Ends the request that waits longest in each step."""

    def __init__(self):
        self.waiting, self.most, self.fails = [], 0, False

    def start(self):
        pass

    def stop(self, block):
        assert not block
        self.stopped = True

    def is_running(self):
        return True

    def _generation_step(self):
        time.sleep(0.001)

    def add_request(self, tokens, request_id, max_new_tokens, record_timestamps):
        assert record_timestamps and len(tokens) == serving.PROMPT
        self.waiting.append((request_id, max_new_tokens, time.perf_counter()))
        self.most = max(self.most, len(self.waiting))

    def get_result(self, timeout):
        if not self.waiting:
            return None
        name, count, created = self.waiting.pop(0)
        self._generation_step()
        logging.getLogger('ContinuousBatchingLogger').debug('Scheduled: %d', 1)
        first = time.perf_counter()
        return types.SimpleNamespace(request_id=name, error='broken' if self.fails else None, created_time=created,
                                     generated_tokens=[1] * count, timestamps=[first + 0.5 * i for i in range(count)])


def unavailable():
    raise RuntimeError('no manager')


SHAPE = {'vocab_size': 97, 'hidden_size': 16, 'intermediate_size': 16, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 8}
options = types.SimpleNamespace(layers=1, device='cpu', end=float('inf'))
run = serving.Run(options, SHAPE, torch.float32)
run.start = unavailable
try:
    serving.measure_loop(run, 1, 1)
    raise AssertionError('without a manager there is no result')
except RuntimeError as error:
    assert str(error) == 'no manager'
run.start = lambda: run.watch(Manager())
for concurrency, count in ((1, 3), (4, 9)):
    serving.measure_loop(run, concurrency, count)
    loop = run.result['loops'][-1]
    assert run.manager.most == max(2, concurrency) and len(loop['requests']) == count  # two warm up
    assert abs(loop['tpot_s'] - 0.5) < 1e-9 and all(len(r['tokens_s']) == serving.ANSWER - 1 for r in loop['requests'])
    assert len(loop['steps']) == len(loop['scheduler']) == count and loop['scheduler'][0][1] == 'Scheduled: 1'
    assert all(0 <= r['sent_s'] <= loop['whole_s'] and r['first_token_s'] > 0 for r in loop['requests'])
broken = run.manager
broken.fails = True
try:
    serving.measure_loop(run, 1, 1)
    raise AssertionError('an error of a request is no result')
except RuntimeError as error:
    assert str(error) == 'broken' and broken.stopped
sent = run.sent
serving.measure_loop(run, 1, 1)
assert run.manager is not broken and run.sent == sent + 3  # a manager of its own, which two requests warm up
run.end = 0
try:
    serving.measure_loop(run, 1, 1)
    raise AssertionError('a loop without time must end')
except TimeoutError as error:
    assert '0 of 1' in str(error)
print('closed loops keep their requests in flight')
