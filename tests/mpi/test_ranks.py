"""Four ranks on one machine, one of which is killed midway, give the same rows as one process.

usage: test_ranks.py KVCAST [unittest arguments]
"""

import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

import program

KVCAST_MPI = pathlib.Path(program.KVCAST).with_name('kvcast-mpi')
SOURCE = pathlib.Path(__file__).resolve().parents[2]
SWEEP = '''name: ranks
model: llama-3.2-1b
score: none
workload: {decode_tokens: 16}
trace: {recipe: needle, layers: 1, steps: 4, window: 32}  # too few queries for h2o
framework: {warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}
sweep:
  workload.prompt_tokens: [300, 600, 3000]
  hardware: [a100-40gb-pcie4, h100-sxm]
  policy: [full, {name: quest, budget: 64}, {name: snapkv, budget: 64}, {name: freekv, budget: 64, sink: 16, recent: 16, page: 16}, {name: h2o, budget: 64}]
'''
POINTS = 3 * 2 * 5
VOLATILE = {'created_at', 'wall_s', 'engine.wall_s', 'checksum'}


def rows(folder):
    """Returns the rows by key without values that differ between runs. h2o is refused: the trace lacks the queries that it reads."""
    connection = sqlite3.connect(folder / 'results.sqlite')
    connection.row_factory = sqlite3.Row
    found = {}
    for row in connection.execute('SELECT * FROM experiments'):
        row = {name: row[name] for name in row.keys() if name not in VOLATILE and row[name] is not None}
        parts = json.loads(row.pop('parts'))
        parts.pop('timeline', None)
        found[row['key']] = row | {'parts': parts}
    connection.close()
    return found


def job(config, folder):
    """Returns the job of four ranks, whose folder is on a disk that all of them share."""
    return ['mpirun', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-n', '4', str(KVCAST_MPI), 'sweep',
            str(config), '-o', str(folder), '-j', '1']


def processes_of_rank(parent, rank):
    """Returns the children of mpirun that run as this rank."""
    found = []
    for entry in pathlib.Path('/proc').iterdir():
        try:
            if not entry.name.isdigit() or int((entry / 'stat').read_text().rsplit(')', 1)[1].split()[1]) != parent:
                continue
            if f'OMPI_COMM_WORLD_RANK={rank}'.encode() in (entry / 'environ').read_bytes().split(b'\0'):
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='kvcast-mpi-'))
        self.addCleanup(shutil.rmtree, self.folder)
        self.config = self.folder / 'sweep.yaml'
        self.config.write_text(SWEEP)

    def run_to_end(self, command):
        return subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=600)

    def test_a_job_with_a_killed_rank_resumes(self):
        alone = self.run_to_end([program.KVCAST, 'sweep', str(self.config), '-o', str(self.folder / 'alone')])
        self.assertIn('experiments were refused', alone.stderr)
        expected = rows(self.folder / 'alone')
        self.assertEqual(len(expected), POINTS)

        store = self.folder / 'ranks' / 'results.sqlite'
        with open(self.folder / 'log', 'w') as log:
            running = subprocess.Popen(job(self.config, self.folder / 'ranks'), cwd=SOURCE, stdout=log, stderr=log)
            deadline = time.monotonic() + 300
            kept = 0
            while running.poll() is None and kept == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
                try:
                    connection = sqlite3.connect(f'file:{store}?mode=ro', uri=True)
                    kept = connection.execute("SELECT count(*) FROM experiments WHERE status = 'ok'").fetchone()[0]
                    connection.close()
                except sqlite3.Error:
                    pass
            victims = processes_of_rank(running.pid, 2)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            code = running.wait(timeout=300)
        if victims:
            self.assertNotEqual(code, 0)
        before = {key for key, row in rows(self.folder / 'ranks').items() if row['status'] == 'ok'}
        self.assertGreaterEqual(len(before), kept)

        again = self.run_to_end(job(self.config, self.folder / 'ranks'))
        self.assertIn(f'{POINTS} experiments, {len(before)} of them in the store already', again.stderr)
        self.assertEqual(rows(self.folder / 'ranks'), expected)

    def test_both_programs_resume_from_each_other(self):
        first = self.run_to_end([program.KVCAST, 'sweep', str(self.config), '-o', str(self.folder / 's'), '--shard', '1/2'])
        there = sum(row['status'] == 'ok' for row in rows(self.folder / 's').values())
        self.assertGreater(there, 0, first.stderr)
        rest = self.run_to_end(job(self.config, self.folder / 's'))
        self.assertIn(f'{POINTS} experiments, {there} of them in the store already', rest.stderr)

    def test_an_error_ends_all_ranks(self):
        self.config.write_text(SWEEP.replace('quest', 'qest'))
        self.assertEqual(self.run_to_end(job(self.config, self.folder / 's')).returncode, 2)


if __name__ == '__main__':
    if not KVCAST_MPI.exists() or shutil.which('mpirun') is None:
        print('skipped: kvcast-mpi is not built or mpirun is missing (libboost-mpi-dev, openmpi-bin)')
        sys.exit(program.SKIPPED)
    program.main()
