"""Builds the wheel and the source distribution of the package kvcast (a PEP 517 backend, and a program).

    python3 python/kvcast_build.py wheel -b BUILD -o DIR    from a build folder with the targets kvcast and _kvcast
    python3 python/kvcast_build.py sdist -o DIR

A wheel holds the extension module, the program, the data, and every shared library that manylinux does not promise, each with a name
of its own and found by its place. Needs patchelf.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# PEP 600: the libraries that every system of the tag has.
PROMISED = {'libc.so.6', 'libm.so.6', 'libdl.so.2', 'libpthread.so.0', 'librt.so.1', 'libgcc_s.so.1', 'libstdc++.so.6', 'ld-linux-x86-64.so.2'}
PLATFORM = 'manylinux_2_36_x86_64'
VEGA = pathlib.Path('/usr/share/javascript/vega')


def version():
    return re.search(r'project\(kvcast VERSION ([\d.]+)', (ROOT / 'CMakeLists.txt').read_text()).group(1)


def metadata():
    return f'''Metadata-Version: 2.1
Name: kvcast
Version: {version()}
Summary: Forecasts KV-cache compression and retrieval for long-context LLMs
License: Apache-2.0
Requires-Python: >=3.11
Provides-Extra: arrays
Requires-Dist: numpy; extra == "arrays"
Provides-Extra: frames
Requires-Dist: pandas; extra == "frames"
Description-Content-Type: text/markdown

{(ROOT / 'docs' / 'python.md').read_text()}'''


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def libraries_of(binary):
    """Paths of the shared libraries that a file needs, directly or not, by name."""
    found = re.findall(r'^\s*(\S+) => (/\S+)', run('ldd', binary), re.MULTILINE)
    return {name: pathlib.Path(path) for name, path in found if name not in PROMISED}


def bundle(tree, binaries):
    """Copies the libraries of the binaries into the tree under names of their own, and makes everything find them there."""
    paths = {}
    for binary in binaries:
        paths.update(libraries_of(binary))
    folder = tree / 'kvcast.libs'
    folder.mkdir()
    names = {}
    for name, path in paths.items():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        names[name] = name.replace('.so', f'-{digest}.so', 1)
        shutil.copyfile(path, folder / names[name])
        (folder / names[name]).chmod(0o755)
        add_licence(tree, path)
    for name in names.values():
        run('patchelf', '--set-soname', name, folder / name)
    for file in [*binaries, *folder.iterdir()]:
        for name in run('patchelf', '--print-needed', file).split():
            if name in names:  # one change a call: patchelf 0.14 mixes up several
                run('patchelf', '--replace-needed', name, names[name], file)
        run('patchelf', '--set-rpath', '/'.join(['$ORIGIN', os.path.relpath(folder, file.parent)]), file)


def add_licence(tree, path):
    """Copies the licence of the Debian package that a file is from."""
    for place in (path, path.resolve(), pathlib.Path('/usr') / str(path.resolve()).lstrip('/')):
        owner = subprocess.run(['dpkg', '-S', place], capture_output=True, text=True, check=False).stdout
        if owner:
            package = owner.split(':')[0]
            shutil.copyfile(f'/usr/share/doc/{package}/copyright', tree / info() / 'licenses' / f'{package}.txt')
            return
    raise SystemExit(f'{path} is of no Debian package, whose licence the wheel could name')


def info():
    return f'kvcast-{version()}.dist-info'


def copy_data(share):
    for folder in ('configs', 'reports', 'traces/recipes'):
        shutil.copytree(ROOT / folder, share / folder, ignore=shutil.ignore_patterns('out', '__pycache__', '*.png'))
    shutil.copytree(VEGA, share / 'javascript' / 'vega', ignore=shutil.ignore_patterns('*.map'))


def make_wheel(build, out):
    """Returns the path of the wheel."""
    build, out = pathlib.Path(build), pathlib.Path(out)
    tag = f'cp{sys.version_info.major}{sys.version_info.minor}'
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        package = tree / 'kvcast'
        shutil.copytree(ROOT / 'python' / 'kvcast', package, ignore=shutil.ignore_patterns('__pycache__'))
        extension = f'_kvcast{sysconfig.get_config_var("EXT_SUFFIX")}'
        shutil.copy(build / 'python' / 'kvcast' / extension, package)
        (package / 'bin').mkdir()
        shutil.copy(build / 'kvcast', package / 'bin')
        copy_data(package / 'share' / 'kvcast')
        (tree / info() / 'licenses').mkdir(parents=True)
        shutil.copy(ROOT / 'LICENSE', tree / info() / 'licenses')
        shutil.copyfile('/usr/share/doc/libjs-vega/copyright', tree / info() / 'licenses' / 'libjs-vega.txt')
        bundle(tree, [package / extension, package / 'bin' / 'kvcast'])
        (tree / info() / 'METADATA').write_text(metadata())
        (tree / info() / 'WHEEL').write_text(f'Wheel-Version: 1.0\nGenerator: kvcast_build\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-{PLATFORM}\n')
        (tree / info() / 'entry_points.txt').write_text('[console_scripts]\nkvcast = kvcast.__main__:main\n')
        return write_zip(tree, out / f'kvcast-{version()}-{tag}-{tag}-{PLATFORM}.whl')


def write_zip(tree, path):
    """Equal trees give equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = ''
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        for file in sorted(file for file in tree.rglob('*') if file.is_file()):
            name, content = str(file.relative_to(tree)), file.read_bytes()
            entry = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | (file.stat().st_mode & 0o777)) << 16
            wheel.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()
            record += f'{name},sha256={digest},{len(content)}\n'
        wheel.writestr(zipfile.ZipInfo(f'{info()}/RECORD', (2024, 1, 1, 0, 0, 0)), f'{record}{info()}/RECORD,,\n')
    return path


def sources():
    """The project's files without those of tools (.ci, .clang-format), of a checkout or of an unpacked source distribution."""
    if (ROOT / '.git').exists():
        listed = run('git', '-C', ROOT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard').split('\0')
        return sorted(file for file in listed if file and not file.startswith('.') and (ROOT / file).is_file())
    made = re.compile(r'(build|dist|out|reports/out|\.)|.*__pycache__')
    files = (str(file.relative_to(ROOT)) for file in ROOT.rglob('*') if file.is_file())
    return sorted(file for file in files if not made.match(file))


def make_sdist(out):
    """Returns the path of an archive of the project's files, which `pip install` compiles."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    name = f'kvcast-{version()}'
    path = out / f'{name}.tar.gz'
    with tarfile.open(path, 'w:gz') as archive, tempfile.TemporaryDirectory() as folder:
        for file in sources():
            archive.add(ROOT / file, f'{name}/{file}')
        (pathlib.Path(folder) / 'PKG-INFO').write_text(metadata())
        archive.add(f'{folder}/PKG-INFO', f'{name}/PKG-INFO')
    return path


def compile_into(build):
    run('cmake', '-S', ROOT, '-B', build, '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release', '-DKVCAST_TESTS=OFF', '-DKVCAST_PYTHON=ON',
        f'-DPython3_EXECUTABLE={sys.executable}')
    subprocess.run(['cmake', '--build', build, '--target', 'kvcast', '_kvcast'], check=True, stdout=sys.stderr)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # pylint: disable=unused-argument
    with tempfile.TemporaryDirectory() as build:
        compile_into(build)
        return make_wheel(build, wheel_directory).name


def build_sdist(sdist_directory, config_settings=None):  # pylint: disable=unused-argument
    return make_sdist(sdist_directory).name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['wheel', 'sdist'])
    parser.add_argument('-b', '--build', help='the build folder of a wheel')
    parser.add_argument('-o', '--out', required=True)
    options = parser.parse_args()
    if options.what == 'wheel' and not options.build:
        parser.error('a wheel needs -b')
    print(make_wheel(options.build, options.out) if options.what == 'wheel' else make_sdist(options.out))


if __name__ == '__main__':
    main()
