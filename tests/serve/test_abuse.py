"""Attacks on the server, from outside and through requests: what can be read, blocked, used up or broken.

The server runs in a folder that holds secrets. After every attack it must still answer, use no processor time and have no more
memory than before.

usage: test_abuse.py KVCAST [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

from server import Server

TOOL = None
SECRET = 'hunter2-correct-horse'
RUN = '''model: llama-3.2-1b
hardware: h100-sxm
policy: {name: quest, budget: 256}
workload: {prompt_tokens: 1024, decode_tokens: 16}
trace: {recipe: needle, layers: 1, steps: 4}
score: none
'''
# Minutes of one core: the weights of all pairs of a long prompt.
LONG = RUN.replace('llama-3.2-1b', 'llama-3.1-8b').replace('1024', '32768').replace('{name: quest, budget: 256}', '{name: h2o, budget: 1024}').replace('layers: 1', 'layers: 2')
LONG_SWEEP = LONG.replace('policy: {name: h2o, budget: 1024}\n', '') + 'sweep: {policy: [{name: h2o, budget: 1024}, {name: h2o, budget: 2048}]}\n'
LONG_PLAN = LONG + 'plan:\n  - why: {of: {policy: {name: h2o, budget: 1024}}, against: {policy: {name: h2o, budget: 512}}}\n'
LONG_SCORE = RUN.replace('score: none', 'score: ruler').replace('budget: 256', 'budget: 777').replace('1024', '65536').replace('llama-3.2-1b', 'llama-3.1-8b')
LONG_MATCH = LONG.replace('{name: h2o, budget: 1024}', 'quest').replace('steps: 4', 'steps: 64') + 'match: {tokens_attended: 700}\n'
LONG_TRACE = RUN.replace('llama-3.2-1b', 'llama-3.1-8b').replace('1024', '130000').replace('layers: 1', 'layers: 2')
HTTP = ' HTTP/1.1\r\nHost: {host}\r\n'


def patient(check, seconds=60):
    """Waits for a condition that holds soon; false if it does not for a minute."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


class AbuseCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = pathlib.Path(cls.folder.name) / 'home'
        for name in ('models', 'hardware', 'policies', 'hosts', 'frameworks', 'profiles', 'accuracy'):
            (cls.home / 'configs' / name).mkdir(parents=True)
            for link, target in (('linked', '../../../secret.yaml'), ('endless', '/dev/zero'), ('terminal', '/dev/tty')):
                (cls.home / 'configs' / name / f'{link}.yaml').symlink_to(target)
            os.mkfifo(cls.home / 'configs' / name / 'pipe.yaml')
            (cls.home / 'configs' / name / 'notes.yaml').write_text(f'{SECRET}: [1\n')
        (cls.home / 'traces' / 'recipes').mkdir(parents=True)
        (cls.home / 'traces' / 'recipes' / 'linked.yaml').symlink_to('../../../secret.yaml')
        for path in (cls.home / 'secret.yaml', cls.home.parent / 'secret.yaml', cls.home / 'secret'):
            path.write_text(f'title: {SECRET}\n{SECRET}: {SECRET}\n')
        os.mkfifo(cls.home / 'pipe')
        cls.server = Server(TOOL, '-j', '2', cwd=str(cls.home))
        host, port = cls.server.host.rsplit(':', 1)
        cls.address = host, int(port)

    @classmethod
    def tearDownClass(cls):
        code, error = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, (code, error)

    def tearDown(self):
        self.assertTrue(patient(lambda: self.server.post('/api/run', RUN)[0] == 200), 'the server no longer answers')

    def raw(self, data, timeout=60):
        """Sends bytes; returns everything that comes back."""
        with socket.create_connection(self.address, timeout=timeout) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data.replace(b'{host}', self.server.host.encode()))
            answer = b''
            with contextlib.suppress(OSError):
                while part := connection.recv(65536):
                    answer += part
        return answer

    def begin(self, path, text):
        """Sends a request and leaves the connection open."""
        connection = socket.create_connection(self.address, timeout=60)
        head = f'POST {path}' + HTTP.format(host=self.server.host) + f'Content-Type: application/yaml\r\nContent-Length: {len(text)}\r\n\r\n'
        connection.sendall((head + text).encode())
        return connection

    def status(self, key):
        for line in pathlib.Path(f'/proc/{self.server.process.pid}/status').read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
        raise KeyError(key)

    def ticks(self):
        fields = pathlib.Path(f'/proc/{self.server.process.pid}/stat').read_text().rsplit(')', 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def is_idle(self):
        before = self.ticks()
        time.sleep(0.3)
        return self.ticks() - before <= 2

    def refused(self, path, text, kind='application/yaml'):
        status, body = self.server.post(path, text, kind)
        self.assertEqual(status, 400, (text[:200], body[:500]))
        self.assertNotIn(SECRET, body)
        return json.loads(body)['error']

    def test_no_name_leads_out_of_the_listed_files(self):
        names = ['../secret', '../../secret', 'configs/../secret', 'configs/models/../../../secret', './secret.yaml', '/etc/passwd', '/dev/zero', '/proc/self/environ',
                 'configs/hardware/../../secret', 'linked', 'endless', 'terminal', 'pipe', 'notes', '~/x', '..', '.', 'configs/hardware/linked.yaml', '..%2fsecret', '..\\\\secret',
                 'file:///etc/passwd', 'secret', 'h100-sxm/../linked', f'{self.home}/secret', f'{self.home}/configs/models/linked']
        places = ['model: {}', 'hardware: {}', 'hardware: {{like: {}}}', 'hardware: {{like: {{name: {}}}}}', 'hardware: {{like: h100-sxm, host: {}}}',
                  'hardware: {{like: h100-sxm, host: {{like: {}}}}}', 'framework: {}', 'framework: {{name: {}}}', 'policy: {}', 'policy: {{name: {}}}', 'policy: {{file: {}}}',
                  'policy: {{name: duo_attention, profile: {}}}', 'policy: {{name: loki, basis: {}}}', 'policy: {{name: replayed, selections: {}}}',
                  'policy: {{name: rocketkv, first_stage: {}}}', 'policy: {{name: twilight, selector: {}}}',
                  'policy: {{name: kivi, selector: {{file: {}}}}}', 'policy: {{name: minference, then: {{name: loki, basis: {}}}}}', 'trace: {{recipe: {}}}', 'trace: {{file: {}}}', 'traces: [{{recipe: {}}}]', 'score: {}', 'score: {{benchmark: {}}}',
                  'price_per_hour: {{{}: 2}}']
        for place in places:
            for name in names:
                key = place.split(':')[0]
                text = '\n'.join(line for line in RUN.splitlines() if not line.startswith((key + ':', 'trace:' if key == 'traces' else '\0'))) + '\n'
                text += place.format(json.dumps(name)) + '\n'
                if key == 'price_per_hour' and name == 'notes':  # a listed machine, of which no number is read
                    self.assertNotIn(SECRET, self.server.post('/api/run', text)[1])
                    continue
                self.assertNotIn('root:', self.refused('/api/run', text))

    def test_traffic_names_no_files_and_has_a_limited_number_of_requests(self):
        base = '\n'.join(line for line in RUN.splitlines() if not line.startswith('workload')) + '\n'
        for name in ('/etc/passwd', '../../secret.yaml', '/dev/zero'):
            self.refused('/api/run', base + f'traffic: {{file: {json.dumps(name)}}}\n')
            self.refused('/api/run', base + f'traffic: {{rate: 1, prompt_tokens: {{file: {json.dumps(name)}}}}}\n')
        self.assertIn('requests', self.refused('/api/run', base + 'traffic: {rate: 1000, requests: 900000000}\n'))
        self.assertIn('takes about', self.refused('/api/run', base + 'traffic: {rate: 1000, requests: 200000, prompt_tokens: 100000, output_tokens: 20000}\n'))

    def test_sweeps_and_plans_name_no_more_than_runs(self):
        base = '\n'.join(line for line in RUN.splitlines() if not line.startswith(('policy', 'hardware'))) + '\nhardware: h100-sxm\npolicy: full\n'
        for name in ('../../secret', 'configs/hardware/linked.yaml', 'linked', 'pipe'):
            quoted = json.dumps(name)
            self.refused('/api/sweep', base + f'sweep: {{hardware: [h100-sxm, {quoted}]}}\n')
            self.refused('/api/sweep', base + f'sweep: {{cases: [{{policy: {{file: {quoted}}}}}]}}\n')
            for question in (f'choose: {{from: {{hardware: [h100-sxm, {quoted}]}}, price_per_hour: {{h100-sxm: 2, {quoted}: 1}}}}', f'why: {{of: {{hardware: {quoted}}}, against: {{hardware: h100-sxm}}}}'):
                status, body = self.server.post('/api/plan', base + f'plan: [{question}]\n')
                self.assertNotIn(SECRET, body)
                self.assertTrue(status == 400 or 'error' in body, body[:300])

    def test_the_page_and_the_catalogue_hold_no_secret(self):
        for path in ('/', '/api/catalogue'):
            self.assertNotIn(SECRET, self.server.ask('GET', path)[2])
        for path in ('/../secret.yaml', '/..%2f..%2fetc/passwd', '//etc/passwd', '/api/../secret.yaml', 'http://evil.example/', '*', '/\xff'):
            answer = self.raw(f'GET {path}'.encode('latin-1') + HTTP.encode() + b'\r\n')
            self.assertNotIn(SECRET.encode(), answer)
            self.assertRegex(answer, rb'^HTTP/1.1 40[0-9] ')

    def test_foreign_hosts_and_pages_are_refused(self):
        for host in ('evil.example', 'evil.example:80', '', 'localhost', '127.0.0.1', '127.0.0.1:1', '[::1]', 'localhost.evil.example'):
            self.assertIn(b' 403 ', self.raw(f'GET / HTTP/1.1\r\nHost: {host}\r\n\r\n'.encode())[:20], host)
        for origin in ('http://evil.example', 'null', 'https://{host}', 'http://{host}.evil.example'):
            self.assertIn(b' 403 ', self.raw(('GET /api/catalogue' + HTTP + f'Origin: {origin}\r\n\r\n').encode())[:20], origin)
        for kind in ('text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', ''):
            self.refused('/api/run', RUN, kind)

    def test_requests_cannot_be_smuggled(self):
        post = 'POST /api/run' + HTTP + 'Content-Type: application/yaml\r\n'
        inner = 'GET /api/catalogue' + HTTP + '\r\n'
        for head, status in (('Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', b'400'), ('Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n', b'400'),
                             ('Content-Length: 3\r\nContent-Length: 30\r\n\r\nabc', b'400'), ('Transfer-Encoding: xchunked\r\n\r\nabc', b'400'), ('Host: evil.example\r\nContent-Length: 0\r\n\r\n', b'400'),
                             ('Content-Length: -1\r\n\r\n', b'400'), ('Content-Length: 99999999999999999999\r\n\r\n', b'400'), ('Content-Length : 3\r\n\r\nabc', b'400')):
            answer = self.raw((post + head + inner).encode())
            self.assertEqual(answer[9:12], status, (head, answer[:300]))
            self.assertEqual(answer.count(b'HTTP/1.1 '), 1, head)

    def test_bodies_that_are_too_large_are_answered(self):
        head = 'POST /api/run' + HTTP + 'Content-Type: application/yaml\r\nContent-Length: {}\r\n\r\n'
        for size in (300_000, 10_000_000, 30_000_000):
            answer = self.raw(head.replace('{}', str(size)).encode() + b'x' * size)
            self.assertIn(b' 413 ', answer[:20], size)
        chunks = b''.join(b'10000\r\n' + b'x' * 65536 + b'\r\n' for _ in range(20)) + b'0\r\n\r\n'
        self.assertIn(b' 413 ', self.raw(('POST /api/run' + HTTP + 'Transfer-Encoding: chunked\r\n\r\n').encode() + chunks)[:20])

    def test_slow_clients_hold_nothing_up(self):
        slow = []
        for i in range(200):
            connection = socket.create_connection(self.address, timeout=60)
            connection.sendall(b'POST /api/run HTTP/1.1\r\nX: ' + b'a' * i)
            slow.append(connection)
        for _ in range(5):
            self.assertEqual(self.server.post('/api/run', RUN)[0], 200)
        for connection in slow:
            connection.close()

    def test_floods_of_connections_are_answered_or_refused(self):
        answers = []
        lock = threading.Lock()

        def flood():
            for _ in range(20):
                answer = self.raw(('GET /nothing' + HTTP + '\r\n').encode())
                with lock:
                    answers.append(answer[9:12])
        threads = [threading.Thread(target=flood) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(answers), {b'404', b'503', b''})
        self.assertGreater(answers.count(b'404'), 0)
        idle = [socket.create_connection(self.address, timeout=60) for _ in range(300)]
        time.sleep(0.1)
        for connection in idle:
            connection.close()

    def test_garbage_never_ends_the_server(self):
        shuffled = random.Random(1)
        words = [b'GET ', b'POST /api/run', b' HTTP/1.1', b'\r\n', b'Host: {host}', b'Content-Length: ', b'5', b'Transfer-Encoding: chunked', b'\r\n\r\n', b'\0', b'\xff', b'A' * 9000, RUN.encode()]
        for _ in range(150):
            data = b''.join(shuffled.choice(words) for _ in range(shuffled.randrange(1, 12)))
            with socket.create_connection(self.address, timeout=60) as connection:
                with contextlib.suppress(OSError):
                    connection.sendall(data.replace(b'{host}', self.server.host.encode()))

    def test_mutated_requests_are_answered(self):
        shuffled = random.Random(2)
        for _ in range(120):
            text = list(RUN)
            for _ in range(shuffled.randrange(1, 6)):
                at = shuffled.randrange(len(text))
                text[at:at + shuffled.randrange(3)] = shuffled.choice(['', '{', '[', ': ', '-', '0', '9' * 9, '\n', '&a ', '*a', '!', '"', '\u00e9', '%'])
            status, body = self.server.post('/api/run', ''.join(text).encode())
            self.assertIn(status, (200, 400), (''.join(text), body[:300]))
            if status == 400:
                json.loads(body)

    def test_bombs_are_refused_before_they_are_expanded(self):
        resident = self.status('VmHWM')
        axes = ''.join(f'  workload.decode_tokens: [{", ".join(map(str, range(1, 11)))}]\n' if i == 0 else f'  hardware.gpu.{key}: [{", ".join(f"x1.0{j}" for j in range(10))}]\n'
                       for i, key in enumerate(('', 'hbm_bandwidth', 'clock', 'l2_bandwidth', 'tensor_flops', 'vector_flops')))
        bombs = [('/api/sweep', RUN + 'sweep:\n' + axes), ('/api/sweep', RUN + 'sweep:\n  cases:\n' + ''.join('  - {' + ', '.join(f'{k}: [{", ".join(map(str, range(100)))}]' for k in 'abc') + '}\n' for _ in range(2))),
                 ('/api/sweep', RUN + 'sweep: {workload.batch: [' + ', '.join(map(str, range(1, 20000))) + ']}\n'),
                 ('/api/run', 'a: &a [1,1,1,1,1,1,1,1]\n' + ''.join(f'{chr(98 + i)}: &{chr(98 + i)} [' + ', '.join([f'*{chr(97 + i)}'] * 8) + ']\n' for i in range(8))),
                 ('/api/run', '[' * 5000), ('/api/run', '{a: ' * 3000), ('/api/run', 'x' * 200000), ('/api/run', '- ' * 100000),
                 ('/api/run', LONG.replace('h2o, budget: 1024', 'quest, budget: 1024').replace('decode_tokens: 16', 'decode_tokens: 16, prefill_chunk: 1')),
                 ('/api/run', RUN + 'framework: {measured_steps: 4096, warmup_steps: 4096, sampled_contexts: 16}\n'.replace('16', '1024')),
                 ('/api/run', LONG_TRACE.replace('layers: 2', 'layers: 32').replace('steps: 4', 'steps: 4096')),
                 ('/api/sweep', LONG_SWEEP.replace('layers: 2', 'layers: 16')), ('/api/sweep', LONG_SWEEP.replace('sweep: {', 'sweep: {trace.seed: [' + ', '.join(map(str, range(100))) + '], ')),
                 ('/api/plan', RUN + 'plan: [{choose: {from: {workload.batch: [' + ', '.join(map(str, range(1, 5000))) + ']}}}]\n')]
        for path, text in bombs:
            self.refused(path, text)
        self.assertTrue(patient(self.is_idle))
        self.assertLess(self.status('VmHWM') - resident, 200_000)  # kB

    def test_what_a_request_would_take_is_named(self):
        chunks = LONG.replace('h2o, budget: 1024', 'quest, budget: 1024').replace('decode_tokens: 16', 'decode_tokens: 16, prefill_chunk: 1')
        self.assertRegex(self.refused('/api/run', chunks), 'takes about [0-9.]+ GB of memory, most of it for the operations of 32768 prefill chunks .*; a request may take [0-9.]+ GB')

    def leave_while(self, path, text, begun=0.5):
        """Leaves a request that takes minutes; its work must end, and before that must have been under way."""
        with self.begin(path, text) as connection:
            self.assertTrue(patient(lambda: not self.is_idle()), 'the work did not begin')
            time.sleep(begun)
            connection.setblocking(False)
            with self.assertRaises(BlockingIOError):  # no answer yet, at most the first lines of one
                while connection.recv(65536):
                    pass
        self.assertTrue(patient(self.is_idle, 30), f'{path} goes on after its client has left')
        self.assertTrue(patient(lambda: self.status('VmRSS') < 500_000), 'its memory is kept')

    def test_work_ends_when_its_client_leaves(self):
        for path, text in (('/api/run', LONG), ('/api/sweep', LONG_SWEEP), ('/api/plan', LONG_PLAN), ('/api/run', LONG_MATCH), ('/api/run', LONG_SCORE)):
            with self.subTest(path=path, text=text):
                self.leave_while(path, text)
        self.leave_while('/api/run', LONG_TRACE, begun=0)

    def test_clients_that_leave_do_not_fill_the_server(self):
        for _ in range(4):
            connections = [self.begin('/api/run', LONG) for _ in range(20)]
            for connection in connections:
                connection.close()
        self.assertTrue(patient(lambda: self.server.post('/api/run', RUN)[0] == 200))
        self.assertTrue(patient(self.is_idle))

    def test_signals_end_the_server_while_it_works(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            for text in (LONG, LONG_SCORE, LONG_TRACE):
                with Server(TOOL, '-j', '2', cwd=str(self.home)) as server:
                    host, port = server.host.rsplit(':', 1)
                    with socket.create_connection((host, int(port)), timeout=60) as connection:
                        head = f'POST /api/run HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/yaml\r\nContent-Length: {len(text)}\r\n\r\n'
                        connection.sendall((head + text).encode())
                        time.sleep(0.7)
                        code, error = server.stop(how)
                self.assertEqual(code, 0, error)
                self.assertIn('Stopped.', error)


if __name__ == '__main__':
    TOOL = sys.argv.pop(1)
    unittest.main()
