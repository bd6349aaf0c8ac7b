"""The wheel: it needs only what manylinux promises, and works in a fresh environment that has nothing else.

usage: test_wheel.py KVCAST
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from program import KVCAST, SKIPPED, main

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / 'python'))
import kvcast_build  # noqa: E402  pylint: disable=wrong-import-position

if shutil.which('patchelf') is None or not kvcast_build.VEGA.is_dir():
    print('skipped: patchelf or Vega is not installed')
    sys.exit(SKIPPED)

# PEP 600 with the symbol versions of Debian 12, whose glibc the tag names.
NEWEST = {'GLIBC': (2, 36), 'GLIBCXX': (3, 4, 30), 'CXXABI': (1, 3, 13), 'GCC': (12, 0, 0)}
CONFIG = {'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'policy': 'quest', 'score': 'none',
          'workload': {'prompt_tokens': 2048, 'decode_tokens': 8}, 'trace': {'recipe': 'needle', 'layers': 1, 'steps': 2}}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.wheel = kvcast_build.make_wheel(os.environ['KVCAST_BUILD'], cls.root / 'dist')
        cls.tree = cls.root / 'tree'
        with zipfile.ZipFile(cls.wheel) as wheel:
            wheel.extractall(cls.tree)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_it_needs_only_what_the_tag_promises(self):
        binaries = [file for file in self.tree.rglob('*') if file.is_file() and file.read_bytes()[:4] == b'\x7fELF']
        self.assertGreater(len(binaries), 5)
        own = {file.name for file in binaries}
        for file in binaries:
            told = subprocess.run(['readelf', '-d', '-V', '-W', file], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r'\(NEEDED\).*\[(.*)\]', told))
            self.assertLessEqual(needed, own | kvcast_build.PROMISED, file.name)
            for path in re.findall(r'\((?:RUNPATH|RPATH)\).*\[(.*)\]', told):
                self.assertRegex(path, r'^\$ORIGIN(/|$)', file.name)
            wanted = told.split('Version needs section')[1] if 'Version needs section' in told else ''
            for name, number in re.findall(r'Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)', wanted):
                self.assertLessEqual(tuple(map(int, number.split('.'))), NEWEST[name], f'{file.name} needs {name}_{number}')

    def test_its_record_names_every_file(self):
        record = next(self.tree.glob('*.dist-info')).joinpath('RECORD').read_text().splitlines()
        files = {str(file.relative_to(self.tree)) for file in self.tree.rglob('*') if file.is_file()}
        self.assertEqual({line.split(',')[0] for line in record}, files)
        licences = {file.stem for file in self.tree.glob('*.dist-info/licenses/*.txt')}
        self.assertLessEqual({'libyaml-cpp0.7', 'libsqlite3-0', 'libjs-vega'}, licences)

    def test_it_works_in_a_fresh_environment(self):
        venv = self.root / 'venv'
        subprocess.run([sys.executable, '-m', 'venv', venv], check=True)
        clean = {'PATH': f'{venv}/bin:/usr/bin:/bin', 'HOME': str(self.root)}
        def run(*command, text=None):
            return subprocess.run(command, check=True, capture_output=True, text=True, input=text, cwd=self.root, env=clean).stdout
        run(venv / 'bin' / 'pip', 'install', '--no-index', '--disable-pip-version-check', self.wheel)
        code = ('import json, sys, kvcast; r = kvcast.run(json.load(sys.stdin)); '
                'print(json.dumps([r["decode.tokens_per_s"], kvcast.Session().data, len(r.charts())]))')
        speed, data, charts = json.loads(run(venv / 'bin' / 'python', '-c', code, text=json.dumps(CONFIG)))
        told = json.loads(run(venv / 'bin' / 'kvcast', 'run', '-', '--json', text=json.dumps(CONFIG)))
        built = json.loads(subprocess.run([KVCAST, 'run', '-', '--json'], check=True, capture_output=True, text=True,
                                          input=json.dumps(CONFIG)).stdout)
        self.assertEqual(speed, told['decode']['tokens_per_s'])
        self.assertEqual(speed, built['decode']['tokens_per_s'])
        self.assertTrue(data.startswith(str(venv)))
        self.assertGreater(charts, 3)
        (self.root / 'sweep.yaml').write_text(json.dumps({**CONFIG, 'sweep': {'policy.budget': [128, 256]}}))
        run(venv / 'bin' / 'kvcast', 'sweep', 'sweep.yaml', '-o', 'out')
        run(venv / 'bin' / 'kvcast', 'report', 'out')
        loaded = run('ldd', next(venv.rglob('_kvcast*.so')))
        self.assertNotRegex(loaded, 'not found')
        self.assertEqual([], re.findall(r'=> /(?:usr/)?lib\S*/lib(?:yaml|fmt|sqlite|boost|muparser)\S*', loaded))


class Source(unittest.TestCase):
    def test_the_source_distribution_holds_what_is_compiled(self):
        with tempfile.TemporaryDirectory() as folder:
            if not os.path.isdir(kvcast_build.ROOT / '.git') and not os.path.isfile(kvcast_build.ROOT / '.git'):
                self.skipTest('not a checkout')
            with tarfile.open(kvcast_build.make_sdist(folder)) as archive:
                names = set(archive.getnames())
        top = f'kvcast-{kvcast_build.version()}'
        for name in ('PKG-INFO', 'pyproject.toml', 'CMakeLists.txt', 'python/module.cpp', 'python/kvcast/__init__.py',
                     'sim/MODULES', 'configs/models/llama-3.1-8b.yaml', 'traces/recipes/needle.yaml'):
            self.assertIn(f'{top}/{name}', names)

    def unpack(self, folder):
        """Returns the folder of the project in an unpacked archive, which is no checkout."""
        with tarfile.open(kvcast_build.make_sdist(pathlib.Path(folder) / 'dist')) as archive:
            archive.extractall(folder)
        return pathlib.Path(folder) / f'kvcast-{kvcast_build.version()}'

    def test_an_unpacked_one_packs_the_same_files_and_finds_its_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = self.unpack(folder)
            again = subprocess.run([sys.executable, tree / 'python' / 'kvcast_build.py', 'sdist', '-o', pathlib.Path(folder) / 'again'],
                                   check=True, capture_output=True, text=True).stdout.strip()
            with tarfile.open(again) as archive:
                packed = {name.split('/', 1)[1] for name in archive.getnames()}
            self.assertEqual(packed, {str(file.relative_to(tree)) for file in tree.rglob('*') if file.is_file() and '__pycache__' not in str(file)})
            subprocess.run(['cmake', '-S', tree, '-B', pathlib.Path(folder) / 'made', '-G', 'Ninja', '-DKVCAST_TESTS=OFF', '-DKVCAST_PYTHON=ON',
                            f'-DPython3_EXECUTABLE={sys.executable}'], check=True, capture_output=True)

    @unittest.skipUnless(os.environ.get('KVCAST_SDIST'), 'compiles everything: KVCAST_SDIST names a folder for it')
    def test_it_is_compiled_and_installed_without_a_network(self):
        with tempfile.TemporaryDirectory(dir=os.environ['KVCAST_SDIST']) as folder:
            tree, venv = self.unpack(folder), pathlib.Path(folder) / 'venv'
            subprocess.run([sys.executable, '-m', 'venv', venv], check=True)
            clean = {'PATH': f'{venv}/bin:/usr/bin:/bin', 'HOME': os.environ.get('HOME', folder), 'TMPDIR': str(tree)}
            subprocess.run([venv / 'bin' / 'pip', 'install', '--no-index', '--no-build-isolation', '--disable-pip-version-check', tree],
                           check=True, cwd=folder, env=clean)
            told = subprocess.run([venv / 'bin' / 'kvcast', 'run', '-', '--json'], check=True, capture_output=True, text=True,
                                  input=json.dumps(CONFIG), cwd=folder, env=clean).stdout
            code = 'import json, sys, kvcast; print(kvcast.run(json.load(sys.stdin))["decode.tokens_per_s"])'
            speed = subprocess.run([venv / 'bin' / 'python', '-c', code], check=True, capture_output=True, text=True,
                                   input=json.dumps(CONFIG), cwd=folder, env=clean).stdout
            self.assertEqual(float(speed), json.loads(told)['decode']['tokens_per_s'])


if __name__ == '__main__':
    main()
