"""Adds the examples of configs/README.md and traces/README.md as written there, and uses them; runs the sweep of docs/guide.md.

usage: test_configs.py KVCAST
"""

import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'configs' / 'README.md'
TRACES = ROOT / 'traces' / 'README.md'
GUIDE = ROOT / 'docs' / 'guide.md'
SWEEP = ('model: llama-3.1-8b\nhardware: h100-sxm\nscore: none\ntrace: {recipe: needle, layers: 1, steps: 2}\n'
         'workload: {prompt_tokens: 4096, decode_tokens: 16}\n')
RUN = ('model: llama-3.1-8b\nhardware: HARDWARE\npolicy: full\ntrace: {recipe: needle, steps: 4}\n'
       'workload: {prompt_tokens: 8192, decode_tokens: 16, batch: 1}\n')


class AddAGpu(unittest.TestCase):
    tool = ''

    def kvcast(self, folder, *command):
        return subprocess.run([self.tool, *command], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout

    def decode_seconds(self, folder, hardware):
        (folder / 'run.yaml').write_text(RUN.replace('HARDWARE', hardware))
        return json.loads(self.kvcast(folder, 'run', 'run.yaml', '--json'))['decode']['tpot_s']['mean']

    def save_example(self, folder, heading, path):
        """Writes the page's example below a heading to a file under configs/ of the folder."""
        file = folder / 'configs' / path
        file.parent.mkdir(parents=True)
        file.write_text(re.search(rf'## {heading}.*?```yaml\n(.*?)```\n', PAGE.read_text(), re.DOTALL).group(1))

    def test_the_example_is_listed_and_runs(self):
        with tempfile.TemporaryDirectory(prefix='kvcast-configs-') as name:
            folder = pathlib.Path(name)
            self.save_example(folder, 'Add a GPU', 'hardware/example.yaml')
            listed = json.loads(self.kvcast(folder, 'hardware', 'example', '--json'))
            self.assertIn('NVIDIA Example 48 GB', json.dumps(listed))
            # 16 GB of weights at 864 GB/s take at least 18.6 ms.
            self.assertGreater(self.decode_seconds(folder, 'example'), 16.06e9 / 864e9)
            self.assertLess(self.decode_seconds(folder, 'example'), 1.5 * 16.06e9 / 864e9)

    def test_the_example_framework_changes_a_step(self):
        with tempfile.TemporaryDirectory(prefix='kvcast-configs-') as name:
            folder = pathlib.Path(name)
            self.save_example(folder, 'Add a framework', 'frameworks/example-engine.yaml')
            self.assertIn('2 ms', self.kvcast(folder, 'frameworks', 'example-engine'))
            alone = self.decode_seconds(folder, 'h100-sxm')
            self.assertGreater(self.decode_seconds(folder, 'h100-sxm\nframework: example-engine'), alone + 1.9e-3)

    def test_the_example_writes_a_trace_that_a_run_replays(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest('numpy is missing')
        example = re.search(r'```python\n(.*?)```\n', TRACES.read_text(), re.DOTALL).group(1)
        with tempfile.TemporaryDirectory(prefix='kvcast-traces-') as name:
            folder = pathlib.Path(name)
            subprocess.run([sys.executable, '-c', example], cwd=folder, check=True)
            self.assertIn('nothing wrong', self.kvcast(folder, 'trace', 'check', 'trace.safetensors'))
            run = RUN.replace('HARDWARE', 'h100-sxm').replace('8192', '1024')
            (folder / 'run.yaml').write_text(run.replace('{recipe: needle, steps: 4}', '{file: trace.safetensors}'))
            self.assertIn('trace.safetensors', self.kvcast(folder, 'run', 'run.yaml'))

    def test_the_sweep_with_cases_of_the_guide_runs(self):
        example = re.search(r'```yaml\n(sweep:.*?)```\n', GUIDE.read_text(), re.DOTALL).group(1)
        with tempfile.TemporaryDirectory(prefix='kvcast-guide-') as name:
            folder = pathlib.Path(name)
            (folder / 'sweep.yaml').write_text(SWEEP + example)
            self.kvcast(folder, 'sweep', 'sweep.yaml', '-o', 'out')
            runs = sqlite3.connect(folder / 'out' / 'results.sqlite').execute(
                'SELECT policy, count(*) FROM runs GROUP BY policy ORDER BY policy').fetchall()
            self.assertEqual(runs, [('full', 2), ('quest', 4), ('snapkv', 4)])


if __name__ == '__main__':
    AddAGpu.tool = os.path.abspath(sys.argv.pop(1))
    unittest.main()
