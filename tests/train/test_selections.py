"""Checks that `python3 -m kvcast_train.selections` reports wrong arguments. A stand-in for PyTorch suffices, because arguments
are checked before anything is computed."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

METADATA = {'n_layers': '1', 'n_q_heads': '2', 'n_kv_heads': '1', 'head_dim': '4', 'rope_theta': '10000', 'prompt_tokens': '3',
            'decode_steps': '1', 'layers': '0'}
STAND_IN = '''import sys
from unittest.mock import MagicMock
for name in ("torch", "torch.nn", "torch.nn.functional"):
    sys.modules[name] = MagicMock()
'''


class Arguments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        (cls.path / 'torch.py').write_text(STAND_IN)
        cls.trace = cls.write('trace.safetensors', METADATA)

    @classmethod
    def write(cls, name, metadata):
        header = {'__metadata__': metadata, 'query_positions': {'dtype': 'I64', 'shape': [1], 'data_offsets': [0, 8]}}
        text = json.dumps(header).encode()
        (cls.path / name).write_bytes(len(text).to_bytes(8, 'little') + text + (3).to_bytes(8, 'little'))
        return cls.path / name

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, *arguments):
        modules = os.pathsep.join([str(self.path), os.environ.get('PYTHONPATH', '')])
        done = subprocess.run([sys.executable, '-m', 'kvcast_train.selections', *map(str, arguments)], capture_output=True,
                              text=True, env={**os.environ, 'PYTHONPATH': modules})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, '')
        self.assertNotIn('Traceback', done.stderr)
        return done.stderr

    def test_missing_arguments_are_refused(self):
        self.assertIn('required: trace, policy', self.refused())

    def test_missing_and_invalid_files_are_refused(self):
        self.assertIn('nowhere.safetensors', self.refused(self.path / 'nowhere.safetensors', 'quest'))
        self.assertIn('torch.py: ', self.refused(self.path / 'torch.py', 'quest'))

    def test_unknown_policies_and_parameters_are_refused(self):
        self.assertIn('unknown policy quests', self.refused(self.trace, 'quests'))
        self.assertIn('quest: unknown parameters pages', self.refused(self.trace, 'quest', 'pages=3'))

    def test_values_that_are_not_numbers_are_refused(self):
        for setting in ('budget=abc', 'budget', 'budget=-4', 'budget=true'):
            self.assertIn('budget must be a number of at least 0', self.refused(self.trace, 'snapkv', setting))

    def test_a_trace_of_several_turns_is_refused(self):
        trace = self.write('turns.safetensors', {**METADATA, 'turns': '[0, 2]'})
        self.assertIn('its prompt has several turns', self.refused(trace, 'snapkv'))


if __name__ == '__main__':
    support.main()
