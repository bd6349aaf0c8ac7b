"""Measures `kvcast run` without any cache, on three synthetic texts of a long context: its time and its memory.

usage: cold.py KVCAST [TOKENS] [POLICY ...]
Prints wall and CPU seconds and the largest resident memory for some policies: Quest selects layer by layer, OmniKV needs all
captured layers at once. `all` stands for every policy, each with its default parameters. The yardstick of the same run is
the clearing of 1 GB by the system: `times` is the CPU time as a multiple of it.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

POLICIES = {'full': 'full', 'quest': '{name: quest, budget: 2048}', 'omnikv': '{name: omnikv, budget: 2048}'}


def yardstick():
    # The yardstick runs in a process of its own, because Linux counts the memory of the process that starts a program
    # as memory of that program.
    child = os.posix_spawn(sys.executable, (sys.executable, '-c', 'bytearray(1 << 30)'), os.environ)
    _, _, usage = os.wait4(child, 0)
    return usage.ru_utime + usage.ru_stime


def measure(tool, policy, tokens, folder):
    """Wall seconds, CPU seconds and the largest resident MB of a run whose cache is empty."""
    config = pathlib.Path(folder, 'run.yaml')
    config.write_text(f'model: llama-3.1-8b\nhardware: h100-sxm\npolicy: {policy}\nscore: none\n'
                      f'workload: {{prompt_tokens: {tokens}, decode_tokens: 64}}\n')
    begun = time.perf_counter()
    child = os.posix_spawn(tool, (tool, 'run', str(config)), {**os.environ, 'XDG_CACHE_HOME': folder},
                           file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)])
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f'{policy}: {status}')
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def chosen(tool, names):
    if not names:
        return POLICIES
    if names == ['all']:
        names = [policy['name'] for policy in json.loads(subprocess.check_output([tool, 'policies', '--json']))]
    return {name: name for name in names}


def main():
    tool, tokens = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 131008
    unit = yardstick()
    print(f'three texts of {tokens} tokens; yardstick {unit:.2f} s of CPU')
    for name, policy in chosen(tool, sys.argv[3:]).items():
        with tempfile.TemporaryDirectory() as folder:
            wall, cpu, memory = measure(tool, policy, tokens, folder)
        print(f'{name:<20} {wall:8.1f} s {cpu:8.1f} s of CPU {memory:8.0f} MB {cpu / unit:8.1f} times', flush=True)


if __name__ == '__main__':
    main()
