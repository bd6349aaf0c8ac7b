"""A kvcast server for tests: started on a free port, queried with the standard library, stopped at the end."""

import http.client
import json
import os
import signal
import subprocess
import tempfile
import urllib.parse


class Server:
    def __init__(self, tool, *arguments, cwd=None, ahead=False, **variables):
        # Replays that an earlier run kept would change what is counted and shown.
        self.cache = tempfile.TemporaryDirectory(prefix='kvcast-cache-')
        variables = {'XDG_CACHE_HOME': self.cache.name} | variables
        self.process = subprocess.Popen([tool, 'serve', '--port', '0', *([] if ahead else ['--no-ahead']), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                                        env=os.environ | variables)
        self.url = self.process.stdout.readline().strip()
        self.host = urllib.parse.urlsplit(self.url).netloc

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self, how=signal.SIGTERM):
        """Stops the server; returns its exit code and its output on stderr."""
        os.kill(self.process.pid, how)
        _, error = self.process.communicate(timeout=300)
        self.cache.cleanup()
        return self.process.returncode, error

    def ask(self, method, path, body=None, **headers):
        """Sends a request; returns status, headers and body."""
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request(method, path, body, {name.replace('_', '-'): value for name, value in headers.items()})
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read().decode()
        connection.close()
        return answer

    def post(self, path, yaml, kind='application/yaml'):
        status, _, body = self.ask('POST', path, yaml, Content_Type=kind)
        return status, body

    def lines(self, path, yaml):
        status, body = self.post(path, yaml)
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]
