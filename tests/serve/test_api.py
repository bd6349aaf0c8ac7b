"""The server's JSON: the same numbers as printed by the commands, and clear refusals.

usage: test_api.py KVCAST [unittest arguments]
"""

import json
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

from server import Server

TOOL = None
BASE = '''model: llama-3.1-8b
hardware: {like: h100-sxm, gpu: {hbm_bandwidth: x1.25}}
workload: {prompt_tokens: 4096, decode_tokens: 64, batch: 4}
trace: {recipe: needle, layers: 1, steps: 4}
score: none
'''
RUN = BASE + 'policy: {name: quest, budget: 512}\n'
SWEEP = BASE + 'sweep:\n  policy: [full, {name: quest, budget: 512}]\n'
PLAN = RUN + '''plan:
  - why: {of: {policy: {name: quest, budget: 512}}, against: {policy: full}, if_free: false}
  - break_even: {key: workload.batch, from: 1, to: 4, metric: decode.tokens_per_s, of: {policy: {name: quest, budget: 512}}, against: {policy: full}}
'''


def command(*words):
    return json.loads(subprocess.run([TOOL, *words], check=True, capture_output=True, text=True).stdout)


def without_clock(result):
    """Returns the result without the run time of the simulation."""
    result = json.loads(json.dumps(result))
    del result['engine']['wall_s']
    return result


class ApiCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(TOOL)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def config(self, text):
        path = pathlib.Path(self.folder.name) / 'config.yaml'
        path.write_text(text)
        return str(path)

    def test_a_run_returns_the_json_of_the_command(self):
        status, body = self.server.post('/api/run', RUN)
        self.assertEqual(status, 200, body)
        printed = command('run', self.config(RUN), '--json')
        self.assertEqual(without_clock(json.loads(body)), without_clock(printed))
        self.assertEqual(printed['config']['policy']['budget'], 512)

    def test_json_is_accepted_as_well_as_yaml(self):
        run = {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'policy': 'full', 'score': 'none', 'workload': {'prompt_tokens': 4096, 'batch': 4},
               'trace': {'recipe': 'needle', 'layers': 1, 'steps': 4}}
        status, body = self.server.post('/api/run', json.dumps(run), 'application/json')
        self.assertEqual(status, 200, body)
        self.assertEqual(json.loads(body)['config']['workload']['batch'], 4)

    def test_an_error_in_truncated_json_names_the_byte(self):
        status, body = self.server.post('/api/run', '{"model": "llama-3.1-8b"', 'application/json')
        self.assertEqual(status, 400)
        self.assertEqual(json.loads(body)['error'], 'request: not valid JSON at byte 25')

    def test_a_sweep_streams_its_points(self):
        lines = self.server.lines('/api/sweep?timeline=1', SWEEP)
        self.assertEqual(lines[-1], {'done': 2})
        results = {line['index']: line for line in lines if 'result' in line}
        self.assertEqual(sorted(results), [0, 1])
        self.assertEqual(results[1]['swept'], {'policy.name': 'quest', 'policy.budget': '512'})
        self.assertNotIn('timeline', results[0]['result'])
        self.assertTrue(results[1]['result'].pop('timeline'))
        self.assertEqual(without_clock(results[1]['result'])['decode'], without_clock(command('run', self.config(RUN), '--json'))['decode'])

    def progress(self, server, yaml):
        return [(line['progress']['done'], line['progress']['of']) for line in server.lines('/api/sweep?nominal=1', yaml) if 'progress' in line]

    def test_replays_are_counted_and_kept_for_the_next_start(self):
        yaml = SWEEP.replace('decode_tokens: 64', 'decode_tokens: 63')
        folder = self.folder.name + '/cache'
        with Server(TOOL, XDG_CACHE_HOME=folder) as server:
            # Two replays over one trace: neither is there, then one, then both.
            self.assertEqual(sorted(set(self.progress(server, yaml))), [(0, 2), (1, 2), (2, 2)])
            self.assertEqual(self.progress(server, yaml), [])
            first = server.lines('/api/sweep?nominal=1', yaml)
        with Server(TOOL, XDG_CACHE_HOME=folder) as server:
            again = server.lines('/api/sweep?nominal=1', yaml)
            self.assertEqual([line for line in again if 'progress' in line], [])
            by_index = [{line['index']: without_clock(line['result']) for line in lines if 'result' in line} for lines in (first, again)]
            self.assertEqual(*by_index)
            # A third policy: the two that are there count from the start.
            told = self.progress(server, yaml.replace('[full, ', '[full, snapkv, '))
            self.assertEqual((told[-1], {of for _, of in told}), ((3, 3), {3}))

    def test_replays_of_common_settings_are_made_ahead(self):
        first = (pathlib.Path(__file__).parents[2] / 'reports' / 'planner_ahead.yaml').read_text().splitlines()[1].removeprefix('- ')
        folder = pathlib.Path(self.folder.name) / 'ahead'
        count = lambda: sum(sqlite3.connect(file).execute('SELECT count(*) FROM replays').fetchone()[0] for file in folder.glob('kvcast/*/results.sqlite'))
        with Server(TOOL, ahead=True, XDG_CACHE_HOME=str(folder)) as server:
            deadline = time.monotonic() + 500
            while count() < 16 and time.monotonic() < deadline:  # five policies on three traces, and the next sweep has begun
                time.sleep(0.2)
            self.assertEqual(self.progress(server, first), [])
            self.assertEqual(server.stop()[0], 0)  # while others are being made

    def test_replays_are_made_without_a_folder_to_keep_them(self):
        blocked = pathlib.Path(self.folder.name) / 'blocked'
        blocked.write_text('no folder')
        with Server(TOOL, XDG_CACHE_HOME=str(blocked)) as server:
            self.assertEqual(self.progress(server, SWEEP)[-1], (2, 2))
            self.assertEqual(self.progress(server, SWEEP), [])

    def test_a_plan_returns_the_answers_of_the_command(self):
        lines = self.server.lines('/api/plan', PLAN)
        self.assertEqual(lines[-1], {'done': 2})
        self.assertEqual([line['answer'] for line in lines[:-1]], command('plan', self.config(PLAN), '--json')['answers'])
        self.assertEqual(lines[0]['answer']['runs'], 2)  # both sides, and no separate resources
        for line in lines[:-1]:
            self.assertIn('marks', line['spec'])

    def test_errors_name_their_location(self):
        for path, text, said in (('/api/run', RUN.replace('batch', 'bach'), 'request:3:'), ('/api/run', 'a: [', 'request'), ('/api/run', RUN.replace('quest', 'qest'), 'quest'),
                                 ('/api/plan', RUN, 'plan'), ('/api/sweep?timeline=x', SWEEP, 'timeline'), ('/api/nothing', RUN, '/api/nothing'), ('/api/run', '', 'request')):
            status, body = self.server.post(path, text)
            self.assertIn(status, (400, 404), body)
            self.assertIn(said, json.loads(body)['error'])

    def test_a_failure_within_a_sweep_is_a_result(self):
        lines = self.server.lines('/api/sweep', BASE.replace('steps: 4', 'steps: 4, window: 32') + 'sweep:\n  policy: [full, {name: h2o, budget: 512}]\n')
        results = {line['index']: line['result'] for line in lines if 'result' in line}
        self.assertEqual(results[0]['status'], 'ok')
        self.assertEqual(results[1]['status'], 'failed')
        self.assertIn('queries', results[1]['error'])

    def test_requests_cannot_name_files(self):
        for text in (RUN.replace('recipe: needle', 'file: secret.safetensors'), RUN.replace('llama-3.1-8b', '/etc/passwd'), RUN.replace('llama-3.1-8b', '../x.yaml'),
                     RUN.replace('{name: quest, budget: 512}', '{file: /tmp/p.yaml}'), RUN.replace('score: none', 'score: mine.yaml'), RUN + 'trace.file: x\n'):
            status, body = self.server.post('/api/run', text)
            self.assertEqual(status, 400, body)
            self.assertIn('requests cannot name files', json.loads(body)['error'])

    def test_a_content_type_that_a_form_can_send_is_refused(self):
        status, body = self.server.post('/api/run', RUN, 'text/plain')
        self.assertEqual(status, 400)
        self.assertIn('application/yaml', body)

    def test_the_size_of_a_sweep_is_limited(self):
        status, body = self.server.post('/api/sweep', BASE + 'policy: full\nsweep:\n  workload.batch: [' + ', '.join(map(str, range(1, 400))) + ']\n')
        self.assertEqual(status, 400)
        self.assertIn('more than the 256 points of a request', body)

    def test_the_catalogue_lists_what_a_configuration_may_name(self):
        status, headers, body = self.server.ask('GET', '/api/catalogue')
        self.assertEqual((status, headers['Content-Type']), (200, 'application/json'))
        catalogue = json.loads(body)
        self.assertEqual([p['name'] for p in catalogue['policies']], [p['name'] for p in command('policies', '--json')])
        self.assertEqual(len(catalogue['machines']), len(command('hardware', '--json')))
        machine = next(m for m in catalogue['machines'] if m['name'] == 'h100-sxm')
        self.assertEqual(machine, command('hardware', 'h100-sxm', '--json'))
        self.assertTrue(all({'key', 'unit', 'origin', 'uncertainty', 'source', 'range'} <= set(n) for n in machine['numbers']))

    def test_a_broken_machine_file_is_named_and_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'configs' / 'hardware' / 'broken.yaml'
            path.parent.mkdir(parents=True)
            path.write_text('title: t\n')
            with Server(TOOL, cwd=folder) as server:
                catalogue = json.loads(server.ask('GET', '/api/catalogue')[2])
                self.assertEqual(len(catalogue['machines']), len(command('hardware', '--json')))
                _, error = server.stop()
        self.assertEqual(len(catalogue['left_out']), 1)
        self.assertEqual(catalogue['left_out'], ["configs/hardware/broken.yaml cannot be used; the server's terminal says why"])
        self.assertIn('kvcast: configs/hardware/broken.yaml:1:1: hardware profile: the required key "gpu" is missing; the page leaves it out', error)

    def test_malformed_requests_are_answered(self):
        host, port = self.server.host.rsplit(':', 1)
        for text, status in (('GARBAGE\r\n\r\n', 400), ('GET / HTTP/9.9\r\n\r\n', 400), ('GET /x HTTP/1.1\r\nno colon\r\n\r\n', 400),
                             ('POST /api/run HTTP/1.1\r\nContent-Length: -5\r\n\r\n', 400), ('GET / HTTP/1.1\r\nA: ' + 'a' * 100000 + '\r\n\r\n', 431)):
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                connection.sendall(text.encode())
                answer = b''.join(iter(lambda: connection.recv(65536), b'')).decode()
            self.assertTrue(answer.startswith(f'HTTP/1.1 {status} '), (text[:60], answer[:200]))
            self.assertTrue(json.loads(answer.split('\r\n\r\n', 1)[1])['error'])

    @unittest.skipIf(os.environ.get('KVCAST_SANITIZED'), 'a stage may take longer than the program waits before it ends itself')
    def test_the_server_stops_cleanly_while_it_simulates(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            with Server(TOOL) as server:
                import http.client
                connection = http.client.HTTPConnection(server.host)
                connection.request('POST', '/api/run', RUN.replace('4096', '32768'), {'Content-Type': 'application/yaml'})
                code, error = server.stop(how)
                connection.close()
            self.assertEqual(code, 0, error)
            self.assertIn('Stopped.', error)

    def test_a_port_in_use_is_named(self):
        port = self.server.host.rsplit(':', 1)[1]
        refused = subprocess.run([TOOL, 'serve', '--port', port], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(port, refused.stderr)


if __name__ == '__main__':
    TOOL = sys.argv.pop(1)
    unittest.main()
