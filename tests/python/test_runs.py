"""Runs, sweeps and plans of the package: numbers, errors and texts are those of the command, to the last digit.

usage: test_runs.py KVCAST
"""

import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from program import KVCAST, main, need

need('pandas', 'yaml')

import kvcast  # noqa: E402  pylint: disable=wrong-import-position

SMALL = {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'workload': {'prompt_tokens': 2048, 'decode_tokens': 8},
         'trace': {'recipe': 'needle', 'layers': 1, 'steps': 2}, 'score': 'none'}


def command(*arguments, config=None, code=0):
    """Returns what the command prints for a configuration on its standard input: its errors if it fails."""
    text = None if config is None else json.dumps(config)
    done = subprocess.run([KVCAST, *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f'exit code {done.returncode}: {done.stderr}')
    return done.stdout if code == 0 else done.stderr


def without_times(data):
    """A result without the seconds that kvcast itself took."""
    data = json.loads(json.dumps(data))
    data.get('engine', {}).pop('wall_s', None)
    return data


class Runs(unittest.TestCase):
    def test_a_run_has_the_numbers_of_the_command(self):
        config = {**SMALL, 'policy': {'name': 'quest', 'budget': 256}}
        told = json.loads(command('run', '-', '--json', config=config))
        result = kvcast.run(config)
        self.assertEqual(without_times(result.data), without_times(told))
        self.assertEqual(result['decode.tokens_per_s'], told['decode']['tokens_per_s'])
        self.assertEqual(list(result.interval('decode.tokens_per_s')), told['intervals']['decode.tokens_per_s'])
        self.assertEqual(result.origin('decode.tokens_per_s'), told['origin']['decode.tokens_per_s'])
        self.assertEqual(result.unit('decode.tokens_per_s'), 'tokens/s')
        self.assertEqual(result['hbm'], result['memory.hbm_peak_bytes'], 'an alias')
        self.assertEqual(dict(result)['prefill.ttft_s'], told['prefill']['ttft_s'])
        self.assertEqual(result.settings['config.policy.budget'], 256)

    def test_yaml_a_file_and_a_dict_are_one_configuration(self):
        config = {**SMALL, 'policy': 'quest'}
        import yaml
        text = yaml.safe_dump(config)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'run.yaml')
            path.write_text(text)
            results = [kvcast.run(given, **{'workload.batch': 2, 'policy.budget': '1K'}) for given in (config, text, path, str(path))]
        for result in results[1:]:
            self.assertEqual(without_times(result.data), without_times(results[0].data))
        self.assertEqual(results[0].settings['config.policy.budget'], 1024)

    def test_errors_are_those_of_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'run.yaml')
            for text, changes in (('model: llama-3.1-8b\nhardwear: h100-sxm\n', {}), ('model: llama-9\n', {}), ('model: [\n', {}),
                                  (json.dumps(SMALL), {'policy.budgt': 3}), (json.dumps(SMALL), {'workload.batch': 'x'}),
                                  (json.dumps({**SMALL, 'sweep': {'policy': ['full', 'quest']}}), {'policy': 'tova'})):
                path.write_text(text)
                kind = 'sweep' if 'sweep' in text else 'run'
                with self.assertRaises(kvcast.Error) as raised:
                    list(getattr(kvcast, kind)(path, **changes))
                arguments = [f'--set={key}={value}' for key, value in changes.items()]
                out = ['-o', folder] if kind == 'sweep' else []
                told = command(kind, str(path), *out, *arguments, code=2)
                self.assertEqual(f'kvcast: {raised.exception}\n', told)

    def test_a_dict_s_errors_have_no_place_but_name_the_key(self):
        with self.assertRaisesRegex(kvcast.Error, r'^run: unknown key "hardwear"'):
            kvcast.run({**SMALL, 'hardwear': 1})
        with self.assertRaisesRegex(kvcast.Error, 'policy'):
            kvcast.run({**SMALL, 'policy': ['full']})
        for change, text in (({'policy': object()}, '^policy: an? object is no value'), ({3: 1}, 'the key 3 is no text'),
                             ({'workload': {'prompt_tokens': float('nan')}}, r'^workload\.prompt_tokens: nan is no number'),
                             ({'traces': [{'seed': {1}}]}, r'^traces\.seed: a set is no value')):
            with self.assertRaisesRegex(kvcast.Error, text):
                kvcast.run({**SMALL, **change})
        with self.assertRaisesRegex(kvcast.Error, r'^workload\.batch: inf is no number'):
            kvcast.run(SMALL, **{'workload.batch': float('inf')})
        with self.assertRaisesRegex(kvcast.Error, 'policies in Python are taken by run and replay alone'):
            kvcast.sweep(SMALL, policy=kvcast.Policy())
        # A table of floats holds whole numbers as floats.
        floats, whole = (kvcast.run({**SMALL, 'policy': 'full'}, **{'workload.batch': batch}) for batch in (2.0, 2))
        self.assertEqual(floats['decode.tokens_per_s'], whole['decode.tokens_per_s'])

    def test_what_does_not_fit_says_what_would(self):
        config = {**SMALL, 'policy': 'full', 'workload': {'prompt_tokens': 2048, 'decode_tokens': 8, 'batch': 4096}}
        result = kvcast.run(config)
        told = json.loads(command('run', '-', '--json', config=config))
        self.assertEqual(result.status, 'oom')
        self.assertEqual(result.data['oom'], told['oom'])
        self.assertNotIn('decode.tokens_per_s', result)
        with self.assertRaisesRegex(KeyError, 'does not fit'):
            result['decode.tokens_per_s']
        self.assertIn(told['oom']['nearest']['change'], result._repr_html_())
        with self.assertRaisesRegex(KeyError, 'no metric is called'):
            result['decode.tokens']

    def test_a_result_shows_itself(self):
        result = kvcast.run({**SMALL, 'policy': 'quest'}, timeline=True)
        page = result._repr_html_()
        for path in result:
            self.assertIn(f'<code>{path}</code>', page)
        self.assertIn('quest on h100-sxm, llama-3.1-8b', repr(result))
        charts = result.charts()
        self.assertGreater(len(charts), 3)
        for chart in charts:
            self.assertIn('vega', chart.spec['$schema'])
            self.assertIn(chart.name, repr(charts))
        rows = [data for data in charts['step_breakdown'].spec['data'] if data['name'] == 'breakdown']
        shown = {row['kind']: row['exposed_s'] for row in rows[0]['values']}
        self.assertEqual(set(shown), {part['kind'] for part in result.data['breakdown']})
        for part in result.data['breakdown']:
            self.assertAlmostEqual(shown[part['kind']], part['exposed_s'], delta=1e-5 * part['exposed_s'])

    @unittest.skipUnless(shutil.which('node') and os.path.isdir('/usr/share/javascript/vega'), 'needs Node.js and Vega')
    def test_a_chart_is_drawn(self):
        bundle = kvcast.run({**SMALL, 'policy': 'quest'}).charts()['memory_owners']._repr_mimebundle_()
        self.assertEqual(bundle['application/vnd.vega.v5+json']['$schema'][:24], 'https://vega.github.io/s')
        self.assertGreater(float(re.search(r'viewBox="0 0 ([0-9.]+) ', bundle['image/svg+xml']).group(1)), 300)
        self.assertIn('weights', bundle['image/svg+xml'])


class Sweeps(unittest.TestCase):
    def test_all_policies_have_the_numbers_of_the_command(self):
        names = [policy['name'] for policy in kvcast.policies() if policy['name'] != 'replayed']
        self.assertGreater(len(names), 30)
        config = {**SMALL, 'sweep': {'policy': names}}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, 'sweep.yaml')
            path.write_text(json.dumps(config))
            done = subprocess.run([KVCAST, 'sweep', path, '-o', folder], capture_output=True, text=True, check=False)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            store = sqlite3.connect(f'{folder}/results.sqlite')
            store.row_factory = sqlite3.Row
            rows = {row['config.policy.name']: dict(row) for row in store.execute('select * from experiments')}
            store.close()
        results = kvcast.sweep(config).wait()
        self.assertEqual([result.swept['policy.name'] for result in results], names)
        compared = 0
        for result in results:
            row = rows[result.settings['config.policy.name']]
            self.assertEqual(result.status, row['status'])
            for path in result:
                if path == 'engine.wall_s':
                    continue
                self.assertEqual(result[path], row[path], f'{path} of {result.title}')
                if result.interval(path):
                    self.assertEqual(result.interval(path), (row[f'{path}.low'], row[f'{path}.high']))
                compared += 1
        self.assertGreater(compared, 30 * len(names))

    def test_a_frame_has_a_column_for_each_metric_and_setting(self):
        sweep = kvcast.sweep({**SMALL, 'policy': 'quest', 'sweep': {'policy.budget': [128, 256], 'workload.batch': [1, 4096]}})
        first = next(sweep)
        frame = sweep.frame()
        self.assertEqual(list(frame['config.policy.budget']), [128, 128, 256, 256])
        self.assertEqual(list(frame['config.workload.batch']), [1, 4096, 1, 4096])
        self.assertEqual(list(frame['status']), ['ok', 'oom', 'ok', 'oom'])
        self.assertEqual(frame['decode.tokens_per_s'][first.index], first['decode.tokens_per_s'])
        self.assertTrue(frame['decode.tokens_per_s'].isna()[1])
        self.assertEqual(frame.attrs['units']['memory.hbm_peak_bytes'], 'bytes')
        self.assertEqual(set(frame.attrs['definitions']), {c for c in frame.columns if not c.startswith('config.')} - {'status'})
        self.assertIn('does not fit', sweep._repr_html_())
        self.assertIn('throughput_budget', repr(sweep.charts()))

    def test_a_sweep_that_is_closed_keeps_what_has_ended(self):
        sweep = kvcast.sweep({**SMALL, 'sweep': {'policy': ['full', 'quest'], 'workload.batch': list(range(1, 100))}})
        first = next(sweep)
        sweep.close()
        self.assertLess(len(sweep.wait()), 198)
        self.assertIn(first, sweep.results)


class Plans(unittest.TestCase):
    def test_answers_are_those_of_the_command(self):
        config = {**SMALL, 'policy': 'quest', 'plan': [{'sensitivities': {'metric': 'decode.tokens_per_s'}}, {
            'why': {'metric': 'decode.tpot_s.mean', 'of': {'policy': 'quest'}, 'against': {'policy': 'full'}}}]}
        told = json.loads(command('plan', '-', '--json', config=config))['answers']
        answers = kvcast.plan(config)
        self.assertEqual([answer.data for answer in answers], told)
        self.assertIn(answers[0].text, answers._repr_html_())
        self.assertIn('vega', answers[1].chart.spec['$schema'])


class Sessions(unittest.TestCase):
    def test_sessions_have_data_of_their_own(self):
        shipped = kvcast.Session()
        with tempfile.TemporaryDirectory() as folder:
            for part in ('configs', 'reports', 'traces/recipes'):
                shutil.copytree(f'{shipped.data}/{part}', f'{folder}/{part}')
            machine = pathlib.Path(folder, 'configs/models/llama-3.1-8b.yaml')
            machine.write_text(machine.read_text().replace('layers: 32', 'layers: 16'))
            mine = kvcast.Session(data=folder, threads=2)
            config, before = {**SMALL, 'policy': 'full'}, os.getcwd()
            with tempfile.TemporaryDirectory() as empty:  # whose configs/ would come first
                os.chdir(empty)
                try:
                    results = {}
                    threads = [threading.Thread(target=lambda s=s, n=n: results.update({n: s.run(config)}))
                               for n, s in (('shipped', shipped), ('mine', mine))]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()
                finally:
                    os.chdir(before)
            self.assertEqual(results['mine']['accuracy.attended_mean'], results['shipped']['accuracy.attended_mean'])
            self.assertLess(results['mine']['decode.tpot_s.mean'], 0.7 * results['shipped']['decode.tpot_s.mean'])
        self.assertEqual(mine.version, shipped.version)
        with self.assertRaisesRegex(kvcast.Error, 'no folder configs/models'):
            kvcast.Session(data='/nonexistent')

    def test_the_version_is_that_of_the_extension(self):
        program = subprocess.run([sys.executable, '-c', 'import kvcast; print(kvcast.Session().version)'], capture_output=True, text=True,
                                 check=True)
        self.assertEqual(program.stdout.strip(), kvcast.Session().version)
        with tempfile.TemporaryDirectory() as folder:  # a rebuilt extension has another one
            package = pathlib.Path(folder, 'kvcast')
            shutil.copytree(pathlib.Path(kvcast.__file__).parent, package)
            extension = next(package.glob('_kvcast*.so'))
            with open(extension, 'ab') as file:
                file.write(b'\0')
            other = subprocess.run([sys.executable, '-c', 'import kvcast; print(kvcast.Session(data="' + kvcast.Session().data +
                                    '").version)'], capture_output=True, text=True, check=True, env={**os.environ, 'PYTHONPATH': folder})
        self.assertNotEqual(other.stdout, program.stdout)

    def test_other_threads_run_while_one_simulates(self):
        ended, counted = threading.Event(), []

        def count():
            while not ended.is_set():
                counted.append(1)
                time.sleep(0.001)
        thread = threading.Thread(target=count)
        thread.start()
        before = len(counted)
        kvcast.run({**SMALL, 'policy': 'h2o', 'workload': {'prompt_tokens': 8192, 'decode_tokens': 8}})
        during = len(counted) - before
        ended.set()
        thread.join()
        self.assertGreater(during, 3)

    def test_an_interrupt_stops_the_work(self):
        code = ('import kvcast, sys\nprint("begun", flush=True)\n'
                'kvcast.run({"model": "llama-3.1-8b", "hardware": "h100-sxm", "policy": "h2o", "score": "none",'
                ' "workload": {"prompt_tokens": 120000, "decode_tokens": 100}, "trace": {"recipe": "needle", "steps": 64, "layers": 8}})')
        child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), 'begun\n')
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=60)
        self.assertIn('KeyboardInterrupt', told)


if __name__ == '__main__':
    main()
