"""Progress of a call: a line on a terminal, a bar in a notebook, nothing elsewhere."""

import json
import sys
import time

from ._errors import Cancelled


def _in_notebook():
    shell = sys.modules.get('IPython')
    shell = shell.get_ipython() if shell else None
    return shell is not None and type(shell).__name__ == 'ZMQInteractiveShell'


class Progress:
    """Shows what a call waits for. wanted: True, False, or None for a terminal and a notebook only."""

    def __init__(self, wanted, what):
        self._notebook = wanted is not False and _in_notebook()
        self._terminal = not self._notebook and (wanted or (wanted is None and sys.stderr.isatty()))
        self._what, self._display, self._drawn = what, None, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._display is not None:
            self._display.update({'text/plain': ''}, raw=True)
        elif self._terminal and self._drawn:
            print('\r\033[K', end='', file=sys.stderr, flush=True)

    def show(self, what, done, total=0):
        if not (self._notebook or self._terminal) or time.monotonic() - self._drawn < 0.2:
            return
        self._drawn = time.monotonic()
        text = f'{what}: {done}' + (f' of {total}' if total else '')
        if self._terminal:
            print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)
            return
        bar = f'<progress value="{done}" max="{total}"></progress> {text}' if total else text
        bundle = {'text/html': bar, 'text/plain': text}
        if self._display is None:
            from IPython.display import DisplayHandle
            self._display = DisplayHandle()
            self._display.display(bundle, raw=True)
        else:
            self._display.update(bundle, raw=True)

    def lines(self, work):
        """The lines of a call other than those on its progress."""
        done = 0
        try:
            for text in work:
                line = json.loads(text)
                if 'progress' in line:
                    told = line['progress']
                    self.show(told['what'], told['done'], told['of'])
                    continue
                done += 'index' in line
                self.show(self._what, done)
                yield line
        except Cancelled:
            return

    def last(self, work):
        line = None
        for line in self.lines(work):
            pass
        return line
