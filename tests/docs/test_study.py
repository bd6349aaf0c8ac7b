"""Runs the examples of docs/study.md in the order of the page and compares their output with the page.

usage: test_study.py KVCAST
Predictions change with the profiles, so outputs are compared with their numbers masked. The conclusions that the page
draws from the numbers are checked by value.
"""

import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'study.md'
NUMBER = re.compile(r'[-+]?\d[\d.,]*')


def blocks():
    """Returns the page's fenced blocks as (language, name of the file named before the block, text)."""
    found = re.findall(r'(?:`([\w.]+)`:\n\n)?```(\w+)\n(.*?)```\n', PAGE.read_text(), re.DOTALL)
    return [(language, name, text) for name, language, text in found]


def shape(text):
    """Returns the words of every line, with numbers masked as #."""
    return [NUMBER.sub('#', line).replace('|', ' | ').split() for line in text.splitlines()]


class Study(unittest.TestCase):
    tool = ''

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix='kvcast-study-')
        cls.outputs = []  # (command or query, printed, shown on the page)
        place = pathlib.Path(cls.folder.name)
        path = os.path.dirname(os.path.abspath(cls.tool)) + os.pathsep + os.environ['PATH']
        page = blocks()
        for (language, name, text), (_, _, shown) in zip(page, page[1:] + [('', '', '')]):
            if language == 'yaml':
                (place / name).write_text(text)
            elif language == 'sh':
                done = subprocess.run(['bash', '-euo', 'pipefail', '-c', text], cwd=place, env={**os.environ, 'PATH': path},
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
                cls.outputs.append((text, done.stdout, shown))
            elif language == 'sql':
                cls.outputs.append((text, cls.table(place, text), shown))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def table(place, query):
        cursor = sqlite3.connect(place / 'bandwidth' / 'results.sqlite').execute(query)
        rows = [[column[0] for column in cursor.description]] + [['' if v is None else v for v in row] for row in cursor]
        return ''.join('|'.join(map(str, row)) + '\n' for row in rows)

    def test_outputs_have_the_form_that_the_page_shows(self):
        self.assertEqual(len(self.outputs), 4)
        for command, printed, shown in self.outputs:
            with self.subTest(command):
                self.assertEqual(shape(printed), shape(shown))

    def test_memory_bandwidth_moves_quest_and_not_freekv(self):
        rows = [line.split('|') for line in self.outputs[1][1].splitlines()[1:]]
        rate = {(policy, hbm, pcie): float(tps) for policy, hbm, pcie, tps, _ in rows}
        self.assertEqual(len(rate), 12)
        for hbm in ('1.675 TB/s', '', '6.7 TB/s'):
            self.assertEqual(rate['quest', hbm, ''], rate['quest', hbm, '6.0 x16'])  # it copies nothing
        self.assertGreater(rate['quest', '6.7 TB/s', ''], 1.2 * rate['quest', '', ''])
        self.assertLess(rate['freekv', '6.7 TB/s', '6.0 x16'], 1.2 * rate['freekv', '', ''])

    def test_a_faster_link_helps_freekv_a_little(self):
        rate = {row[2]: float(row[3]) for row in (line.split('|') for line in self.outputs[1][1].splitlines()[1:])
                if row[0] == 'freekv' and not row[1]}
        self.assertGreater(rate['6.0 x16'], rate[''])

    def test_a_measured_copy_narrows_the_interval_by_a_fifth(self):
        def interval(printed):
            low, high = re.search(r'([\d.]+) tokens/s to ([\d.]+) tokens/s', printed).groups()
            return float(high) - float(low)
        before, after = self.outputs[2][1], self.outputs[3][1]
        self.assertGreater(interval(before), interval(after) / 0.83)
        self.assertIn('link.engine_piece', before)
        self.assertNotIn('link.engine_piece', after)
        self.assertIn('what the model leaves out of fused runtimes', after)


if __name__ == '__main__':
    Study.tool = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
