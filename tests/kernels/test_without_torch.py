"""Checks that programs report a missing PyTorch in one line; a module of its name that cannot be imported replaces it."""
import os
import subprocess
import sys
import tempfile

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
KERNELS, TRACES = os.path.join(PROJECT, 'kernels'), os.path.join(PROJECT, 'traces')
PROGRAMS = [[os.path.join(KERNELS, name)] for name in ('library.py', 'attention_library.py', 'transformers_steps.py', 'transformers_policies.py',
                                                       'transformers_prompts.py', 'transformers_serving.py')]
PROGRAMS.append(['-m', 'kvcast_train.selections'])

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, 'torch.py'), 'w', encoding='utf-8') as file:
        file.write('raise ImportError("no torch here")\n')
    modules = os.pathsep.join([folder, os.path.join(TRACES, 'train'), os.path.join(TRACES, 'capture')])
    for program in PROGRAMS:
        done = subprocess.run([sys.executable, *program], capture_output=True, text=True, check=False,
                              env={**os.environ, 'PYTHONPATH': modules})
        assert done.returncode == 77, (program, done)
        assert done.stderr.count('\n') == 1 and 'torch' in done.stderr.lower(), (program, done)
print('programs report a missing PyTorch in one line')
