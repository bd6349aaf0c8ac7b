"""The notebooks run from their first cell to their last, and every chart in them is drawn.

usage: test_notebooks.py KVCAST
"""

import os
import pathlib
import shutil
import unittest

from program import main, need

need('nbformat', 'nbclient', 'ipykernel', 'pandas')

import nbformat  # noqa: E402  pylint: disable=wrong-import-position
from nbclient import NotebookClient  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = pathlib.Path(__file__).parents[2] / 'notebooks'
VEGA = 'application/vnd.vega.v5+json'


class Notebooks(unittest.TestCase):
    def run_one(self, name):
        notebook = nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)
        self.assertTrue(all(not cell.get('outputs') for cell in notebook.cells), 'outputs are not kept in the repository')
        NotebookClient(notebook, timeout=600, kernel_name='python3', resources={'metadata': {'path': str(FOLDER)}}).execute()
        if 'KVCAST_NOTEBOOKS' in os.environ:
            nbformat.write(notebook, pathlib.Path(os.environ['KVCAST_NOTEBOOKS'], f'{name}.ipynb'))
        outputs = [output for cell in notebook.cells for output in cell.get('outputs', [])]
        charts = [output.data for output in outputs if VEGA in output.get('data', {})]
        self.assertGreater(len(charts), 0)
        for data in charts:
            self.assertTrue(any(part.get('values') for part in data[VEGA]['data']))
            if shutil.which('node'):
                self.assertIn('<path', data['image/svg+xml'])
        self.assertTrue(any('text/html' in output.get('data', {}) for output in outputs))
        self.assertEqual([], [output for output in outputs if output.get('name') == 'stderr'])
        return notebook

    def test_first_forecast(self):
        self.run_one('first_forecast')

    def test_policy_for_a_service(self):
        self.run_one('policy_for_a_service')

    def test_a_method_of_my_own(self):
        self.run_one('a_method_of_my_own')


if __name__ == '__main__':
    main()
