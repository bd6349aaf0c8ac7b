"""Headless Chromium, driven over a pipe with the DevTools protocol. Needs only Python's standard library and the browser.

https://chromedevtools.github.io/devtools-protocol/; --remote-debugging-pipe speaks it in JSON messages that end in a zero
byte, on file descriptors 3 (to the browser) and 4 (from it).
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

NAMES = ('chromium', 'chromium-browser', 'google-chrome')


def find():
    """Returns the browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def run_tests(case, *settings):
    """Runs the tests of the calling file. Its first arguments become attributes of the case: paths of programs."""
    if find() is None:
        print('skipped: Chromium is missing (apt-get install chromium)')
        sys.exit(77)
    for name, value in zip(settings, sys.argv[1:]):
        setattr(case, name, value)
    unittest.main(argv=sys.argv[:1] + sys.argv[1 + len(settings):])


class Browser:
    """One browser process; use as a context manager."""

    def __init__(self, width=1400, height=1000):
        self.profile = tempfile.mkdtemp(prefix='kvcast-browser-')
        to_browser_read, self.to_browser = os.pipe()
        self.from_browser, from_browser_write = os.pipe()

        def hand_over():
            # Both ends may be 3 or 4 themselves, so they move out of the way first.
            read, write = os.dup(to_browser_read), os.dup(from_browser_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [find(), '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
             '--no-first-run', '--disable-renderer-backgrounding', '--hide-scrollbars', '--force-color-profile=srgb', f'--window-size={width},{height}',
             f'--user-data-dir={self.profile}', 'about:blank'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=hand_over, close_fds=False)
        os.close(to_browser_read)
        os.close(from_browser_write)
        self.buffer = b''
        self.next_id = 0
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _read(self, deadline):
        while b'\0' not in self.buffer:
            ready, _, _ = select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError('the browser does not answer')
            chunk = os.read(self.from_browser, 1 << 20)
            if not chunk:
                raise RuntimeError('the browser has ended')
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(message)

    def call(self, method, session=None, timeout=120, **parameters):
        """Sends a command and returns its result; events that arrive in the meantime are kept."""
        self.next_id += 1
        message = {'id': self.next_id, 'method': method, 'params': parameters}
        if session:
            message['sessionId'] = session
        data = json.dumps(message).encode() + b'\0'
        while data:
            data = data[os.write(self.to_browser, data):]
        deadline = time.monotonic() + timeout
        while True:
            answer = self._read(deadline)
            if answer.get('id') != self.next_id:
                self.events.append(answer)
                continue
            if 'error' in answer:
                raise RuntimeError(f'{method}: {answer["error"]}')
            return answer['result']

    def open(self, url, width=1400, height=1000, dark=False):
        return Page(self, url, width, height, dark)


class Page:
    """One tab, loaded and ready."""

    def __init__(self, browser, url, width, height, dark):
        self.browser = browser
        self.target = browser.call('Target.createTarget', url='about:blank')['targetId']
        self.session = browser.call('Target.attachToTarget', targetId=self.target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        self.load(url, width, height, dark)

    def load(self, url, width=1400, height=1000, dark=False):
        """Loads anew, also where only the fragment differs. A tab that has loaded the file before needs half of the time."""
        self.show()
        self.call('Page.navigate', url='about:blank')
        self.browser.events = [event for event in self.browser.events if event.get('sessionId') != self.session]
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.prefer('dark' if dark else 'light')
        self.call('Page.navigate', url=url)
        self.wait("document.documentElement.dataset.ready === 'true' || !document.getElementById('failure').hidden")

    def show(self):
        """Makes this the tab in front: the browser gives the others less time."""
        self.call('Page.bringToFront')

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def prefer(self, scheme, media=''):
        self.call('Emulation.setEmulatedMedia', media=media, features=[{'name': 'prefers-color-scheme', 'value': scheme}])

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression; a promise is awaited."""
        answer = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise RuntimeError(json.dumps(answer['exceptionDetails'].get('exception', answer['exceptionDetails'])))
        return answer['result'].get('value')

    def wait(self, condition, timeout=120):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.evaluate(f'Boolean(document.readyState === "complete" && ({condition}))'):
                return
            time.sleep(0.05)
        raise TimeoutError(f'never true: {condition}')

    def complaints(self):
        """Returns the page's exceptions, logged errors and warnings, and network requests."""
        found = []
        for event in self.browser.events:
            if event.get('sessionId') != self.session:
                continue
            method, parameters = event['method'], event['params']
            if method == 'Runtime.exceptionThrown':
                details = parameters['exceptionDetails']
                found.append(details.get('exception', {}).get('description') or details['text'])
            elif method == 'Runtime.consoleAPICalled' and parameters['type'] in ('error', 'warning', 'assert'):
                found.append(' '.join(str(a.get('value', a.get('description'))) for a in parameters['args']))
            elif method == 'Log.entryAdded' and parameters['entry']['level'] in ('error', 'warning'):
                found.append(parameters['entry']['text'])
            elif method == 'Network.requestWillBeSent' and not parameters['request']['url'].startswith(('file:', 'data:', 'blob:')):
                found.append('asks for ' + parameters['request']['url'])
        return found

    def screenshot(self, path, selector=None):
        clip = {}
        if selector:
            box = self.evaluate(f'(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();'
                                ' return [r.x + scrollX, r.y + scrollY, r.width, r.height]; })()')
            clip = {'clip': dict(zip(('x', 'y', 'width', 'height'), box)) | {'scale': 1}}
        data = self.call('Page.captureScreenshot', captureBeyondViewport=True, **clip)['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.call('Target.closeTarget', targetId=self.target)
