"""Runs the commands of examples/README.md.

usage: test_examples.py KVCAST
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Examples(unittest.TestCase):
    tool = ''

    def output(self, command: str) -> str:
        words = shlex.split(command)
        self.assertEqual(words[0], 'kvcast')
        with tempfile.TemporaryDirectory(prefix='kvcast-examples-') as folder:
            words = [str(pathlib.Path(folder) / w) if w == 'fitted.yaml' else w for w in words]
            ended = subprocess.run([self.tool, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
            self.assertEqual(ended.returncode, 0, f'{command}\n{ended.stdout}{ended.stderr}')
            written = pathlib.Path(folder) / 'fitted.yaml'
            return ended.stdout + (written.read_text() if written.exists() else '')

    def test_the_commands_of_the_page_run(self):
        page = (ROOT / 'examples/README.md').read_text()
        commands = re.findall(r'^\| `(kvcast [^`]*)` \|', page, re.MULTILINE)
        self.assertEqual(len(commands), 5)
        outputs = {command.split()[1]: self.output(command) for command in commands}
        self.assertIn('my-model (max_context 163840)', self.output('kvcast run examples/my-model.yaml --json'))
        self.assertIn('layers: 28', outputs['models'])
        self.assertIn('snapkv', outputs['plan'])
        # The rates with which the rows were made, within what shrinkage and noise leave.
        rates = [float(x) for x in re.findall(r'^  rate of \w+ +x([0-9.]+)', outputs['calibrate'], re.MULTILINE)]
        self.assertAlmostEqual(rates[0], 0.85, delta=0.04)
        self.assertAlmostEqual(rates[1], 0.75, delta=0.04)
        self.assertIn('origin: fitted', outputs['calibrate'])

    def test_every_file_of_the_folder_is_named(self):
        page = (ROOT / 'examples/README.md').read_text()
        for path in (ROOT / 'examples').iterdir():
            self.assertTrue(path.name == 'README.md' or path.name in page, path.name)


if __name__ == '__main__':
    Examples.tool = sys.argv.pop()
    unittest.main()
