"""The schemas accept every committed configuration and refuse the inputs that the reader refuses."""

import json
import pathlib
import subprocess
import tempfile
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

    def test_the_schemas_are_valid(self):
        for validator in self.validators.values():
            jsonschema.Draft7Validator.check_schema(validator.schema)

    def test_committed_configurations_pass(self):
        for kind in self.validators:
            files = sorted((CONFIGS / (kind + 's')).glob('*.yaml'))
            self.assertTrue(files)
            for path in files:
                with self.subTest(path.name):
                    self.assertEqual(self.errors(kind, yaml.safe_load(path.read_text())), [])

    def test_a_run_passes_in_every_spelling(self):
        self.assertEqual(self.errors('run', RUN), [])
        for key, value in [('policy', 'full'), ('policy', 'rocketkv-paper.yaml'), ('hardware', {'like': 'h200', 'gpu': {'hbm_bandwidth': 'x2'}}),
                           ('score', 'ruler'), ('score', {'benchmark': 'ruler', 'floor': '90 %'}), ('trace', {'file': 'a.safetensors'}),
                           ('traces', [{'recipe': 'needle', 'seed': 2}]), ('framework', {'launch': 'eager'}),
                           ('workload', {'prompt_tokens': ['4K', 32768, '32K']})]:
            with self.subTest(value):
                self.assertEqual(self.errors('run', {**RUN, key: value}), [])

    def test_traffic_passes_in_every_spelling(self):
        run = {k: v for k, v in RUN.items() if k != 'workload'}
        for more in [{'traffic': {'rate': 2.5}}, {'traffic': {'rate': 'all', 'slo': {'ttft': '2 s', 'tpot': '50 ms'}}},
                     {'traffic': {'concurrency': 32, 'think_time': '2 s', 'output_tokens': {'low': 8, 'high': 64}}},
                     {'traffic': {'rate': 2, 'process': 'gamma', 'cv': 2, 'prompt_tokens': {'mean': 8192, 'cv': 0.5}}},
                     {'traffic': {'rate': 2, 'prompt_tokens': {'file': 'a.csv'}, 'output_tokens': {'file': 'a.csv'}}},
                     {'traffic': {'rate': 2, 'sessions': {'turns': 8, 'turn_tokens': 500}, 'shared_prefix': {'tokens': 1024, 'groups': 10}}},
                     {'traffic': {'file': 'a.jsonl', 'format': 'mooncake', 'speedup': 2}},
                     {'traffic': {'rate': 2}, 'scheduler': {'kind': 'sglang', 'host_cache': 0, 'memory_utilization': '85 %'}},
                     {'traffic': {'rate': 2}, 'scheduler': {'host_cache': '100 GB', 'max_num_seqs': 64}}]:
            with self.subTest(more):
                self.assertEqual(self.errors('run', {**run, **more}), [])
        for more, place in [({'traffic': {'rate': 'al'}}, 'traffic/rate'), ({'traffic': {'requests': 10}}, 'traffic'),
                            ({'traffic': {'rate': 2, 'prompt_tokens': {'mean': 8192}}}, 'traffic/prompt_tokens'),
                            ({'traffic': {'rate': 2, 'slo': {}}}, 'traffic/slo'), ({'traffic': {'rate': 2, 'slo': {'ttft': 2}}}, 'traffic/slo/ttft'),
                            ({'traffic': {'rate': 2}, 'scheduler': {'kind': 'orca'}}, 'scheduler/kind'),
                            ({'traffic': {'rate': 2}, 'scheduler': {'host_cache': 5}}, 'scheduler/host_cache')]:
            with self.subTest(more):
                self.assertEqual(self.errors('run', {**run, **more}), [place])
        axes = {'traffic.rate': [1, 2, 'all'], 'traffic.slo.ttft': ['1 s', '2 s'], 'scheduler.max_num_seqs': [64, 256]}
        self.assertEqual(self.errors('sweep', {**run, 'traffic': {'rate': 1, 'slo': {'ttft': '1 s'}}, 'sweep': axes}), [])
        self.assertEqual(self.errors('sweep', {**run, 'traffic': {'rate': 1}, 'sweep': {'traffic.rat': [1, 2]}}), ['sweep'])

    def refused_by_reader(self, kind: str, document: dict) -> str:
        """Returns the reader's message; fails if it accepts the document."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'x.yaml'
            path.write_text(yaml.safe_dump(document, sort_keys=False))
            more = ['--out', folder + '/out'] if kind == 'sweep' else []
            done = subprocess.run([program.KVCAST, kind, path, *more], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_errors_of_the_reader_are_errors_of_the_schema_at_the_same_key(self):
        h200 = {'like': 'h200'}
        cases = [({'polcy': 'full'}, ''), ({'workload': {'batch': 0}}, 'workload/batch'), ({'workload': {'batsh': 1}}, 'workload'),
                 ({'workload': {'prompt_tokens': []}}, 'workload/prompt_tokens'), ({'workload': {'prompt_tokens': ['4K', 'x']}}, 'workload/prompt_tokens'),
                 ({'model': 'llama-9'}, 'model'), ({'model': 'llama-3.9-8b'}, 'model'), ({'policy': {'name': 'quest', 'pages': 16}}, 'policy'),
                 ({'policy': {'name': 'quest', 'budget': 'many'}}, 'policy'), ({'policy': {'budget': 512}}, 'policy'),
                 ({'framework': {'launch': 'fast'}}, 'framework/launch'), ({'framework': 'vlm-0.6'}, 'framework'),
                 ({'framework': {'name': 'vlm'}}, 'framework/name'), ({'framework': {'engine_step': 3}}, 'framework/engine_step'),
                 ({'framework': {'measured_steps': 100000}}, 'framework/measured_steps'),
                 ({'trace': {'layers': 0}}, 'trace/layers'), ({'trace': {'recipe': 'neddle'}}, 'trace/recipe'),
                 ({'trace': {'file': 'a.safetensors', 'seed': 2}}, 'trace'), ({'trace': {'seed': 2}, 'traces': [{'seed': 3}]}, ''),
                 ({'traces': [{'seed': 2}, {'seed': 2}]}, 'traces'),
                 ({'score': 'rular'}, 'score'), ({'score': {'benchmark': 'rular'}}, 'score/benchmark'), ({'score': {'floor': 95}}, 'score/floor'),
                 ({'policy': 'quest', 'match': {'bytes_read': '1 MB', 'tokens_attended': 64}}, 'match'), ({'match': {'tokens_attended': 64}}, 'policy'),
                 ({'hardware': {**h200, 'gpu': {'hbm_bandwith': 'x2'}}}, 'hardware/gpu'), ({'hardware': {'gpu': {'hbm_bandwidth': 'x2'}}}, 'hardware'),
                 ({'hardware': {**h200, 'gpu': {'hbm_bandwidth': '3 GB'}}}, 'hardware/gpu/hbm_bandwidth'),
                 ({'hardware': {**h200, 'gpu': {'gather_efficiency': '50 %'}}}, 'hardware/gpu/gather_efficiency'),
                 ({'hardware': {**h200, 'link': {'pcie': {'generation': 9}}}}, 'hardware/link/pcie/generation'),
                 ({'hardware': {**h200, 'host': 'nohost'}}, 'hardware/host'), ({'hardware': {**h200, 'cpu': {}}}, 'hardware'),
                 ({'price_per_hour': -3}, 'price_per_hour'), ({'price_per_hour': {'h1000': 2}}, 'price_per_hour')]
        for change, place in cases:
            with self.subTest(change):
                document = {**RUN, **change}
                self.assertEqual(self.errors('run', document), [place])
                self.refused_by_reader('run', document)

    def test_sweeps_and_plans_that_the_reader_refuses_are_refused(self):
        def largest(targets: dict) -> dict:
            return {'plan': [{'largest': {'key': 'workload.batch', 'targets': targets}}]}
        cases = [('sweep', {'sweep': axes}) for axes in [
                     {'workload.batch': 4}, {'workload': {'batch': 3}}, {'workload.batch': []}, {}, {'workload.batsh': [1, 2]}, {'policy': ['ful']},
                     {'trace.recipe': ['neddle']}, {'framework': ['vlm']}, {'score.floor': [0.9, 0.95]}, {'zip': {'workload.batch': 1}},
                     {'cases': [{'policie': 'full'}]}, {'hardware': {'gpu': {'hbm_bandwith': ['x1', 'x2']}}}]]
        cases += [('plan', change) for change in [
                      {}, largest({'tpot': '50 ms'}), largest({'tpott': '<= 50 ms'}), largest({'tpot': '<= 50 GB'}), largest({'score': '>= 95'}), largest({}),
                      {'plan': [{'why': {'metric': 'tpott', 'of': {'policy': 'full'}, 'against': {'policy': 'quest'}}}]},
                      {'plan': [{'break_even': {'key': 'workload.batch', 'from': 1, 'to': 8, 'against': {'policy': 'full'}}}]},
                      {'plan': [{'choose': {'policyy': ['full', 'quest']}}]}, {**largest({'tpot': '<= 50 ms'}), 'model': 'llama-9'}]]
        for kind, change in cases:
            with self.subTest(change):
                self.assertNotEqual(self.errors(kind, {**RUN, **change}), [])
                self.refused_by_reader(kind, {**RUN, **change})

    def test_a_sweep_without_axes_is_a_run(self):
        self.assertEqual(self.errors('sweep', RUN), [])
        self.assertNotEqual(self.errors('sweep', {k: v for k, v in RUN.items() if k != 'model'}), [])

    def test_names_pass_in_the_spellings_that_the_reader_accepts(self):
        for key, value in [('model', 'Llama 3.1 8B'), ('hardware', 'H100_SXM'), ('framework', 'VLLM-0.9.1'), ('framework', 'transformers-4.51-flash'),
                           ('score', 'LongBench'), ('policy', {'name': 'replayed', 'selections': 'a.json'}), ('hardware', {'like': 'h200', 'host': 'grace-480gb'})]:
            with self.subTest(value):
                self.assertEqual(self.errors('run', {**RUN, key: value}), [])

    def test_axes_pass_in_every_spelling(self):
        for axes in [{'workload': {'batch': [1, 2]}}, {'workload': [{'batch': 3}, {'batch': 4, 'prompt_tokens': 2048}]},
                     {'policy': ['full', {'name': 'quest', 'budget': 256}]}, {'policy': [{'budget': 256}]}, {'hardware.gpu.hbm_bandwidth': ['x1', 'x2']},
                     {'hardware': {'gpu': {'hbm_bandwidth': ['x1', 'x2']}}}, {'zip': [{'workload.batch': 1, 'policy.budget': 512}, {'workload.batch': 2}]},
                     {'zip': {'workload.batch': [1, 2], 'policy.budget': [256, 512]}}, {'traces': [[{'seed': 1}], [{'seed': 2}]]},
                     {'cases': [{'policy': 'full'}, {'policy': {'name': 'quest', 'budget': [256, 512]}}]}]:
            with self.subTest(axes):
                self.assertEqual(self.errors('sweep', {**RUN, 'sweep': axes}), [])

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

    def test_known_names_are_offered_for_completion(self):
        properties = self.validators['run'].schema['properties']
        batch = properties['workload']['properties']['batch']
        self.assertEqual(batch['description'], 'sequences of the batch; default 1')
        self.assertIn({'type': 'integer', 'minimum': 1, 'maximum': 65536}, batch['anyOf'])
        self.assertIn('a name under configs/frameworks', properties['framework']['description'])
        self.assertIn('full', properties['policy']['anyOf'][0]['anyOf'][0]['enum'])


if __name__ == '__main__':
    program.main()
