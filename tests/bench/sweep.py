"""Measures a large sweep of cheap experiments over one warm set of replays: its rate, its memory, and its resumes.

usage: sweep.py KVCAST [POINTS]
Twenty settings of four policies, at up to a hundred batches, on machines whose HBM bandwidth differs. Prints for the sweep,
for the same command once it is finished, and for the report: wall and CPU seconds, experiments per second, and the largest
resident memory. The yardstick of the same run is a read of all bytes of the store by SQLite with a hash of each row: `times`
is the CPU time as a multiple of it.
"""

import hashlib
import os
import pathlib
import resource
import sqlite3
import sys
import tempfile
import time

BUDGETS = (256, 512, 768, 1024, 1536, 2048)
POLICIES = ['full', '{name: quest, budget: 3072}'] + [f'{{name: {name}, budget: {budget}}}'
                                                      for name in ('quest', 'streaming_llm', 'snapkv') for budget in BUDGETS]
BATCHES = 100


def sweep_yaml(points):
    batches = min(BATCHES, max(1, points // len(POLICIES)))
    machines = max(1, points // (len(POLICIES) * batches))
    return f'''name: cheap
model: llama-3.1-8b
hardware: h100-sxm
score: none
workload: {{prompt_tokens: 8192, decode_tokens: 64, prefill_chunk: 8192}}
trace: {{recipe: needle, seed: 1, layers: 1, steps: 4}}
framework: {{warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}}
sweep:
  policy: [{', '.join(POLICIES)}]
  workload.batch: [{', '.join(str(1 + i) for i in range(batches))}]
  hardware.gpu.hbm_bandwidth: [{', '.join(f'x{1 + 0.01 * i:.2f}' for i in range(machines))}]
''', len(POLICIES) * batches * machines


def run(*command):
    """Returns wall seconds, CPU seconds and the largest resident MB of a command."""
    begun = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ,
                            file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)])
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f'{" ".join(command)} failed: {status}')
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def yardstick(store):
    """CPU seconds in which SQLite reads every row of the store and each is hashed."""
    begun = resource.getrusage(resource.RUSAGE_SELF)
    with sqlite3.connect(store) as connection:
        for row in connection.execute('SELECT * FROM experiments'):
            hashlib.blake2b(repr(row).encode()).digest()
    ended = resource.getrusage(resource.RUSAGE_SELF)
    return ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime


def main():
    tool, wanted = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    text, points = sweep_yaml(wanted)
    with tempfile.TemporaryDirectory() as folder:
        config, out = pathlib.Path(folder, 'sweep.yaml'), str(pathlib.Path(folder, 'out'))
        config.write_text(text)
        commands = {'sweep': (tool, 'sweep', str(config), '-o', out), 'resume': (tool, 'sweep', str(config), '-o', out),
                    'report': (tool, 'report', out)}
        measured = {name: run(*command) for name, command in commands.items()}
        unit = yardstick(pathlib.Path(out, 'results.sqlite'))
        print(f'{points} experiments; yardstick {unit:.2f} s of CPU')
        for name, (wall, cpu, memory) in measured.items():
            print(f'{name:<8} {wall:8.1f} s {cpu:8.1f} s of CPU {points / wall:8.0f}/s {memory:8.0f} MB {cpu / unit:8.1f} times')


if __name__ == '__main__':
    main()
