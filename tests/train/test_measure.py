"""The measuring script, from training to the comparison, with a toy model on the CPU. Needs PyTorch."""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

support.need('torch', 'yaml')

SCRIPT = Path(__file__).parents[2] / 'traces' / 'train' / 'measure.sh'


class Measure(unittest.TestCase):
    def test_repeated_calls_resume_until_all_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / 'out'
            settings = {'SIZE': 'toy', 'DEVICE': 'cpu', 'CONTEXTS': '128', 'ITEMS': '2', 'TRACES': '1', 'TASKS': 'tracking',
                        'KVCAST': support.KVCAST, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1'}

            def call(**more):
                done = subprocess.run([SCRIPT, out], env={**os.environ, **settings, **more}, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout

            first = call(MINUTES='0', TOTAL_MINUTES='0.01')
            self.assertIn('run the same command again to continue', first)
            self.assertFalse((out / 'table.csv').exists())
            last = call(MINUTES='8', TOTAL_MINUTES='0.01')
            self.assertTrue(last.endswith('finished\n'), last)
            with open(out / 'table.csv', newline='', encoding='utf-8') as file:
                rows = list(csv.DictReader(file))
            self.assertIn('headkv', {row['policy'] for row in rows if row['accuracy']})
            compared = json.loads((out / 'comparison.json').read_text())
            measured = [row for row in rows if not row['refused']]
            self.assertEqual((compared['rows'], compared['refused']), (len(measured), len(rows) - len(measured)))
            # kvcast accepted every setting that the model's attention accepted.
            self.assertEqual(compared['proxies']['recall_mass_mean']['cells'], len(measured))
            self.assertEqual(json.loads((out / 'environment.json').read_text())['device'], 'CPU')

    def test_existing_weights_are_measured_without_training(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            kept = SCRIPT.parent / 'measured' / 'tiny' / 'model.pt'
            shutil.copy(kept, out)
            settings = {'SIZE': 'tiny', 'DEVICE': 'cpu', 'CONTEXTS': '128', 'ITEMS': '2', 'TRACES': '1', 'TASKS': 'tracking', 'MINUTES': '0',
                        'TOTAL_MINUTES': '30', 'KVCAST': support.KVCAST, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1'}
            done = subprocess.run([SCRIPT, out], env={**os.environ, **settings}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('minutes, finished', done.stdout)
            self.assertEqual((out / 'model.pt').read_bytes(), kept.read_bytes())


if __name__ == '__main__':
    support.main()
