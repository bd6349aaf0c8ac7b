"""configs/validation/refit.py: what has moved, what a new fit replaces, and the figures of a suite.

usage: test_refit.py
"""

import importlib.util
import json
import pathlib
import sys
import unittest

try:
    import yaml  # noqa: F401
except ImportError as error:
    print(f'skipped: {error} (this suite needs yaml)')
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'configs' / 'validation'
SPEC = importlib.util.spec_from_file_location('refit', FOLDER / 'refit.py')
refit = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(refit)


class Refit(unittest.TestCase):
    def test_more_than_one_percent_has_moved(self):
        self.assertEqual(refit.moved({'a': 100, 'b': [1, 2], 'c': 'x'}, {'a': 100.9, 'b': [1, 2.1], 'c': 'y'}),
                         ['b[1]: 2 -> 2.1', 'c: x -> y'])
        self.assertEqual(refit.moved({'a': 1}, {'b': 1}), ['a: 1 -> None', 'b: None -> 1'])
        self.assertEqual(refit.moved({}, {}), [])

    def test_a_fit_replaces_its_own_numbers_only(self):
        own = "kvcast's measuring program on NVIDIA H200"
        committed = f'gpu:\n  a: {{value: 1, source: "{own}"}}\n  b: {{value: 59.8 %, source: "a library"}}\n'
        fitted = f'gpu:\n  a: {{value: 2, source: "{own}"}}\n  b: {{value: 63 %, source: "another"}}\n  c: {{value: 3, source: "{own}"}}\n'
        new = refit.merged_profile(committed, fitted)
        self.assertEqual(new, committed.replace('value: 1,', 'value: 2,'))
        self.assertEqual(refit.values(new), {'a': 2})
        self.assertEqual(refit.merged_profile(new, fitted), new)

    def test_figures_are_those_of_cases_with_an_error(self):
        bounds = {'bounds': {'covered': 3, 'n': 4}}
        report = {'suites': [{'summary': [{'group': '', 'n': 5, 'median': 0.1234, 'p90': 0.5, 'intervals': bounds},
                                          {'group': 'none', 'n': 0, 'median': 0, 'p90': 0, 'intervals': bounds}]}]}
        self.assertEqual(refit.figures_of(report), {'all': {'n': 5, 'median': 12.34, 'p90': 50.0, 'covered': 3, 'intervals': 4}})

    def test_committed_figures_are_as_the_script_writes_them(self):
        text = (FOLDER / 'figures.json').read_text(encoding='utf-8')
        figures = json.loads(text)
        self.assertEqual(refit.text_of(figures), text)
        self.assertLessEqual(set(figures), set(refit.SUITES))
        for suite, groups in figures.items():
            with self.subTest(suite):
                self.assertTrue(all(0 <= g['covered'] <= g['intervals'] and g['median'] <= g['p90'] for g in groups.values()))


if __name__ == '__main__':
    unittest.main()
