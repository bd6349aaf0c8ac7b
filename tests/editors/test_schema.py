"""The schemas accept every committed configuration and refuse the inputs that the reader refuses."""

import json
import pathlib
import subprocess
import unittest

import program

program.need('jsonschema', 'yaml')
import jsonschema  # noqa: E402
import yaml  # noqa: E402

CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
RUN = {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'policy': {'name': 'quest', 'budget': 1024},
       'workload': {'prompt_tokens': '32K', 'batch': 4}}


def schema(kind: str) -> dict:
    return json.loads(subprocess.run([program.KVCAST, 'schema', kind], check=True, capture_output=True, text=True).stdout)


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.validators = {kind: jsonschema.Draft7Validator(schema(kind)) for kind in ('run', 'sweep', 'plan')}

    def errors(self, kind: str, document: dict) -> list[str]:
        return ['/'.join(map(str, e.absolute_path)) for e in self.validators[kind].iter_errors(document)]

    def test_they_are_schemas(self):
        for validator in self.validators.values():
            jsonschema.Draft7Validator.check_schema(validator.schema)

    def test_committed_configurations_pass(self):
        for kind in self.validators:
            files = sorted((CONFIGS / (kind + 's')).glob('*.yaml'))
            self.assertTrue(files)
            for path in files:
                with self.subTest(path.name):
                    self.assertEqual(self.errors(kind, yaml.safe_load(path.read_text())), [])

    def test_a_run_passes_as_it_is_written_in_many_ways(self):
        self.assertEqual(self.errors('run', RUN), [])
        for key, value in [('policy', 'full'), ('policy', 'rocketkv-paper.yaml'), ('hardware', {'like': 'h200', 'gpu': {'hbm_bandwidth': 'x2'}}),
                           ('score', 'ruler'), ('score', {'benchmark': 'ruler', 'floor': '90 %'}), ('trace', {'file': 'a.safetensors'}),
                           ('traces', [{'recipe': 'needle', 'seed': 2}]), ('framework', {'launch': 'eager'})]:
            with self.subTest(value):
                self.assertEqual(self.errors('run', {**RUN, key: value}), [])

    def test_what_the_reader_refuses_is_refused_at_its_place(self):
        cases = [({'polcy': 'full'}, ''), ({'workload': {'batch': 0}}, 'workload/batch'), ({'workload': {'batsh': 1}}, 'workload'),
                 ({'model': 'llama-9'}, 'model'), ({'policy': {'name': 'quest', 'pages': 16}}, 'policy'), ({'policy': {'name': 'quest', 'budget': 'many'}}, 'policy'),
                 ({'framework': {'launch': 'fast'}}, 'framework/launch'), ({'trace': {'layers': 0}}, 'trace/layers'),
                 ({'price_per_hour': -3}, 'price_per_hour')]
        for change, place in cases:
            with self.subTest(change):
                document = {**RUN, **change}
                self.assertEqual(self.errors('run', document), [place])
                done = subprocess.run([program.KVCAST, 'run', '/dev/stdin'], input=yaml.safe_dump(document), capture_output=True, text=True)
                self.assertEqual(done.returncode, 2, done.stderr)

    def test_required_keys_are_those_of_the_reader(self):
        self.assertEqual(sorted(self.validators['run'].schema['required']), ['hardware', 'model', 'policy'])
        self.assertEqual(self.errors('run', {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm'}), [''])
        plan = {**RUN, 'plan': [{'why': {'of': {'policy': 'full'}}}]}  # without `against`
        self.assertEqual(self.errors('plan', plan), ['plan/0'])

    def test_keys_of_a_sweep_are_checked(self):
        self.assertEqual(self.errors('sweep', {**RUN, 'sweep': {'workload.batch': [1, 2], 'policy.budget': [256]}}), [])
        self.assertEqual(self.errors('sweep', {**RUN, 'sweep': {'workload.batsh': [1, 2]}}), ['sweep'])

    def test_numbers_of_a_framework_may_be_quantities_or_state_their_origin(self):
        for number in ['3 ms', 'x2', {'value': '3 ms', 'uncertainty': '5 %'}]:
            document = {**RUN, 'framework': {'name': 'vllm-0.6', 'engine_step': number}}
            self.assertEqual(self.errors('run', document), [])
        self.assertEqual(self.errors('run', {**RUN, 'framework': {'engine_step': True}}), ['framework/engine_step'])

    def test_what_is_known_helps_to_complete(self):
        properties = self.validators['run'].schema['properties']
        batch = properties['workload']['properties']['batch']
        self.assertEqual(batch['description'], 'sequences of the batch; default 1')
        self.assertIn({'type': 'integer', 'minimum': 1, 'maximum': 65536}, batch['anyOf'])
        self.assertIn('a name under configs/frameworks', properties['framework']['description'])
        self.assertIn('full', properties['policy']['anyOf'][0]['anyOf'][0]['enum'])


if __name__ == '__main__':
    program.main()
