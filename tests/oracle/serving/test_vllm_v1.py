"""Outcomes of random loads with preemption and a prefix cache, request by request, as an independent scheduler has them."""

import json
import os
import random
import subprocess
import unittest

from program import KVCAST, main

from vllm_v1 import Engine

LOADS = int(os.environ.get('OUTSIDE_CASES', 12)) * 40
SEED = int(os.environ.get('OUTSIDE_SEED', 1))
FIELDS = ('rejected', 'scheduled', 'first_token', 'last_token', 'preemptions', 'hit_tokens', 'recomputed_tokens')


def draw_requests(r: random.Random) -> list:
    requests: list = []
    at = 0
    spread = r.choice([10, 300, 3000])
    for number in range(r.randint(1, 50)):
        at += r.choice([0, r.randint(0, spread)])
        content = [[r.randint(1, 3), r.randint(1, 30)] for _ in range(r.choice([0, 1, 2]))]
        if requests and r.random() < 0.4:  # a later turn
            before = r.choice(requests)
            named = sum(tokens for _, tokens in before['content'])
            if named == before['prompt_tokens'] and named < 90:
                content = [*before['content'], [before['answer_key'], before['output_tokens']]]
        named = sum(tokens for _, tokens in content)
        requests.append({'arrival': at, 'prompt_tokens': named + r.choice([0, r.randint(1, 40)]) or 1,
                         'output_tokens': r.randint(1, 30), 'content': content,
                         'answer_key': r.choice([0, 1000 + number, 1000 + number])})
        if requests[-1]['answer_key'] == 0:  # none can follow
            requests[-1]['prompt_tokens'] += 1
    return requests


def draw(r: random.Random) -> dict:
    block = r.randint(1, 6)
    rules = {'max_num_seqs': r.randint(1, 10), 'max_num_batched_tokens': r.randint(1, 80), 'block': block,
             'blocks': r.randint(10, 300) // block + 1, 'prefix_caching': r.random() < 0.8, 'full_prompt_gate': r.random() < 0.5,
             'in_flight': r.choice([1, 2]), 'long_prefill_token_threshold': r.choice([0, 0, r.randint(1, 20)]),
             'watermark': r.choice([0, 0, 0.05]), 'max_context': r.choice([10**6, 10**6, 80]),
             'groups': r.choice([0, 0, 1, 3]), 'others': 1, 'window': r.randint(2, 40)}
    if rules['groups']:
        rules['others'] = r.choice([1, 1, 2])
        rules['blocks'] *= rules['groups'] + rules['others']
    times = {'base': r.randint(1, 500), 'read': r.randint(0, 20), 'sequence': r.randint(0, 20), 'context': r.randint(0, 5)}
    requests = draw_requests(r)
    rules['skip'] = r.random() < 0.8
    return {'rules': rules, 'times': times, 'requests': requests}


class VllmV1(unittest.TestCase):
    def test_random_loads(self):
        loads = [draw(random.Random(SEED * 100003 + i)) for i in range(LOADS)]
        done = subprocess.run([KVCAST], input=json.dumps(loads), capture_output=True, text=True, check=True)
        seen = {name: 0 for name in (*FIELDS, 'hits beside a window')}
        for i, (load, got) in enumerate(zip(loads, json.loads(done.stdout), strict=True)):
            expected = Engine(load).run()
            self.assertEqual(len(got), len(load['requests']))
            by_id = {one['id']: one for one in got}
            for request in expected:
                for name in FIELDS:
                    self.assertEqual(by_id[request.id][name], getattr(request, name), f'load {i}, request {request.id}: {name}')
                    seen[name] += getattr(request, name)
                seen['hits beside a window'] += request.hit_tokens > load['rules']['window'] and load['rules']['groups'] > 0
        print(seen)
        for name in ('rejected', 'preemptions', 'hit_tokens', 'recomputed_tokens', 'hits beside a window'):
            self.assertGreater(seen[name], LOADS // 4, f'the loads hardly test {name}')


if __name__ == '__main__':
    main()
