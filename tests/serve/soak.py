"""A server under a mix of good, bad and abandoned requests for minutes: it must answer all of them, and its memory must not grow.

It is no test of the suite: it takes as long as its argument says.

usage: soak.py KVCAST [SECONDS]   (default: 600)
"""

import contextlib
import json
import pathlib
import random
import socket
import sys
import threading
import time

from server import Server

BASE = 'model: llama-3.2-1b\nhardware: {machine}\nworkload: {{prompt_tokens: {prompt}, decode_tokens: 16, batch: {batch}}}\ntrace: {{recipe: needle, layers: 1, steps: {steps}, seed: {seed}}}\nscore: none\n'
POLICIES = ['full', '{name: quest, budget: 256}', '{name: snapkv, budget: 256}', '{name: h2o, budget: 256}', '{name: streaming_llm}', '{name: freekv, budget: 256}', '{name: retroinfer}']
# The last part of the run may exceed the largest memory of the middle part by this much (kB): the heap's own fragments.
ALLOWED = 40_000


class Soak:
    def __init__(self, server, seconds):
        self.server, self.end = server, time.monotonic() + seconds
        self.counts, self.lock, self.problems = {}, threading.Lock(), []
        host, port = server.host.rsplit(':', 1)
        self.address = host, int(port)

    def count(self, kind):
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1

    def base(self, draw):
        return BASE.format(machine=draw.choice(['h100-sxm', 'a100-40gb-pcie4', 'l40s']), prompt=draw.choice([512, 1024, 3000, 8192]), batch=draw.randrange(1, 9), steps=draw.choice([2, 4, 16]), seed=draw.randrange(1, 1000))

    def good(self, draw):
        status, body = self.server.post('/api/run', self.base(draw) + f'policy: {draw.choice(POLICIES)}\n')
        if status not in (200, 503):
            self.problems.append(body)
        json.loads(body)

    def sweep(self, draw):
        status, body = self.server.post('/api/sweep', self.base(draw) + f'sweep: {{policy: [{", ".join(draw.sample(POLICIES, 3))}]}}\n')
        if status == 200 and '"done"' not in body.splitlines()[-1]:
            self.problems.append(body[-300:])

    def bad(self, draw):
        text = list(self.base(draw) + f'policy: {draw.choice(POLICIES)}\n')
        for _ in range(3):
            text[draw.randrange(len(text))] = draw.choice('{}[]:,-\n09xyz')
        status, body = self.server.post('/api/run', ''.join(text))
        if status not in (200, 400, 503):
            self.problems.append(body)

    def leave(self, draw):
        text = self.base(draw).replace('layers: 1', 'layers: 4') + 'policy: {name: h2o, budget: 512}\n'
        with socket.create_connection(self.address, timeout=60) as connection:
            head = f'POST /api/run HTTP/1.1\r\nHost: {self.server.host}\r\nContent-Type: application/yaml\r\nContent-Length: {len(text)}\r\n\r\n'
            connection.sendall((head + text).encode())
            time.sleep(draw.random() / 3)

    def garbage(self, draw):
        with socket.create_connection(self.address, timeout=60) as connection, contextlib.suppress(OSError):
            connection.sendall(bytes(draw.randrange(256) for _ in range(draw.randrange(1, 3000))))

    def page(self, draw):
        status, _, _ = self.server.ask('GET', draw.choice(['/', '/api/catalogue', '/none']))
        if status not in (200, 404, 503):
            self.problems.append(status)

    def work(self, seed):
        draw = random.Random(seed)
        while time.monotonic() < self.end:
            kind = draw.choice([self.good, self.good, self.good, self.sweep, self.bad, self.leave, self.garbage, self.page])
            try:
                kind(draw)
                self.count(kind.__name__)
            except ConnectionError:
                self.count('connection refused or reset')


def main(tool, seconds):
    with Server(tool) as server:
        status = pathlib.Path(f'/proc/{server.process.pid}/status')

        def resident():
            return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith('VmRSS'))
        soak = Soak(server, seconds)
        threads = [threading.Thread(target=soak.work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        samples = []
        begin = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            samples.append(resident())
            print(f'{time.monotonic() - begin:5.0f} s {samples[-1] / 1000:8.1f} MB', flush=True)
            time.sleep(max(1, seconds / 60))
        code, _ = server.stop()
    third = max(1, len(samples) // 3)
    middle, last = max(samples[third:2 * third] or samples), max(samples[2 * third:])
    print(soak.counts)
    print(f'most memory in the middle third {middle / 1000:.1f} MB, in the last {last / 1000:.1f} MB; exit code {code}')
    for problem in soak.problems[:10]:
        print('problem:', str(problem)[:300])
    return 0 if code == 0 and not soak.problems and last <= middle + ALLOWED else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600))
