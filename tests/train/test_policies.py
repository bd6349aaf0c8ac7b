"""The policies that run inside the trained model's attention equal kvcast's: on the same trace they select the same tokens, position
by position, with the same attention mass and output error. Needs PyTorch."""

import tempfile
import unittest
from pathlib import Path

import support

support.need('torch', 'yaml')

import torch

from kvcast_train import selections
from kvcast_train.policies import POLICIES

torch.set_num_threads(1)

# Policies and settings, each with a small and a large budget. The trace has 300 prompt tokens, 12 steps and all prompt queries.
CASES = [
    ('full', {}),
    ('exact_topk', {'budget': 40}), ('exact_topk', {'budget': 24, 'group': 'max_weights'}), ('exact_topk', {'budget': 306}),
    ('streaming_llm', {'budget': 48}), ('streaming_llm', {'budget': 304}),
    ('h2o', {'budget': 40}), ('h2o', {'budget': 64, 'recent': 8, 'sink': 2}), ('h2o', {'budget': 304}),
    ('tova', {'budget': 40}), ('tova', {'budget': 64, 'recent': 1, 'sink': 4}), ('tova', {'budget': 305}),
    ('raas', {'budget': 64, 'page': 8}), ('raas', {'budget': 96, 'page': 8, 'sink': 4, 'recent': 16}),
    ('raas', {'budget': 288, 'page': 4, 'recent': 2}),
    ('d2o', {'budget': 48}), ('d2o', {'budget': 120, 'sink': 0}),
    ('keydiff', {'budget': 40}), ('keydiff', {'budget': 120, 'sink': 4, 'recent': 12}),
    ('keyl2norm', {'budget': 40}),
    ('snapkv', {'budget': 48}), ('snapkv', {'budget': 64, 'window': 16, 'pool': 'avg', 'pool_kernel': 5, 'group': 'max_weights'}),
    ('snapkv', {'budget': 300}),
    ('pyramidkv', {'budget': 48}), ('pyramidkv', {'budget': 160}),
    ('adakv', {'budget': 48}), ('adakv', {'budget': 80, 'floor': 0.5, 'normalise': 'false'}),
    ('cake', {'budget': 48}), ('cake', {'budget': 96, 'window': 8, 'tau1': 1.6, 'tau2': 0.4}),
    ('headkv', {'budget': 48}), ('headkv', {'budget': 64, 'beta': 1.5, 'power': 2}),
    ('compresskv', {'budget': 48}), ('compresskv', {'budget': 96, 'retrieval_heads': 2, 'least_layer_budget': 16}),
    ('duo_attention', {'budget': 128, 'sink': 8, 'recent': 40}), ('duo_attention', {'budget': 32, 'sink': 8, 'recent': 40}),
    ('duo_attention', {'sparsity': 0.5, 'sink': 4, 'recent': 16}),
    ('razor_attention', {'least_buffer': 40, 'induction_share': 0.3}), ('razor_attention', {'least_buffer': 400}),
    ('squeezed_attention', {'window': 40}), ('squeezed_attention', {'window': 24, 'sparsity': 0.9, 'centroid_share': 0.1, 'seed': 5}),
    ('infinigen', {}), ('infinigen', {'alpha': 1.5, 'partial_ratio': 0.5, 'max_share': 0.5}),
    ('magicpig', {'hash_bits': 6, 'hash_tables': 40, 'recent': 16}), ('magicpig', {'hash_bits': 8, 'hash_tables': 75, 'seed': 3}),
    ('retrieval_attention', {'budget': 24, 'sink': 8, 'recent': 32}),
    ('retrieval_attention', {'budget': 24, 'sink': 8, 'recent': 32, 'recall': 0.8, 'seed': 4}),
    ('quest', {'budget': 48}), ('quest', {'budget': 64, 'page': 8, 'group': 'max_scores'}),
    ('sparq', {'budget': 40, 'dims': 8}), ('sparq', {'budget': 24, 'dims': 4, 'recent': 6}),
    ('loki', {'budget': 40, 'dims': 8}), ('loki', {'budget': 24, 'dims': 6, 'recent': 6}),
    ('hsa', {'budget': 64}), ('hsa', {'budget': 24}),
    ('rocketkv', {'budget': 80}), ('rocketkv', {'budget': 32, 'split_factor': 0.3}), ('rocketkv_mt', {'budget': 80}),
    ('arkvale', {'budget': 64, 'page': 8, 'topk': 4}), ('arkvale', {'budget': 128, 'page': 16, 'topk': 100}),
    ('arkvale', {'budget': 304, 'page': 8, 'topk': 3}),
    ('shadowkv', {'budget': 48, 'outliers': 4, 'rank': 12}), ('shadowkv', {'budget': 64, 'page': 4, 'recent': 10, 'outliers': 0}),
    ('freekv', {'budget': 96, 'page': 8}), ('freekv', {'budget': 96, 'page': 8, 'sink': 8, 'recent': 24, 'tau': 0.95}),
    ('freekv', {'budget': 306, 'page': 4, 'sink': 4, 'recent': 8, 'tau': 0.0}),
    ('ctkvr', {'budget': 24, 'sink': 8, 'recent': 32}),
    ('ctkvr', {'budget': 40, 'sink': 4, 'recent': 16, 'centroids': 40, 'retrieved_centroids': 2, 'recall_factor': 1.5}),
]


class SameSelections(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        cls.trace = cls.path / 'trace.safetensors'
        make_trace(cls.trace)
        cls.profile = cls.path / 'profile.yaml'
        support.kvcast('profile', '--trace', cls.trace, '-o', cls.profile)
        cls.read = selections.Trace.read(cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def settings(self, name, settings):
        needs = 'profile' in POLICIES[name].DEFAULTS
        return {**settings, **({'profile': str(self.profile)} if needs else {})}

    def compare(self, name, settings):
        settings = self.settings(name, settings)
        answer, lines = support.replay(self.trace, name, settings, self.path)
        mine, masses, errors = [], [], []
        parameters = selections.parse_parameters([f'{key}={value}' for key, value in settings.items()])
        for layer, t, mask, mass, error in selections.run(self.read, name, parameters):
            mine += [(layer, t, head, row.nonzero()[:, 0].tolist()) for head, row in enumerate(mask)]
            if t >= 0:
                masses.append(mass)
                errors.append(error)
        theirs = [(line['layer'], line['step'], line.get('kv_head', line.get('q_head')), line['attended']) for line in lines]
        self.assertEqual(len(mine), len(theirs))
        for one, other in zip(mine, theirs):
            self.assertEqual(one, other)
        self.assertAlmostEqual(sum(masses) / len(masses), answer['recall_mass_mean'], places=4)
        self.assertAlmostEqual(sum(errors) / len(errors), answer['output_error_mean'], places=3)

    def test_every_policy_is_compared(self):
        self.assertEqual({name for name, _ in CASES}, set(POLICIES))

    def test_unknown_names_and_parameters_are_refused(self):
        with self.assertRaisesRegex(ValueError, 'unknown policy quests'):
            list(selections.run(self.read, 'quests', {}))
        with self.assertRaisesRegex(ValueError, 'quest: unknown parameters pages'):
            list(selections.run(self.read, 'quest', {'pages': 3}))


def make_trace(path: Path) -> None:
    """Writes clustered keys and drifting queries after RoPE: 3 layers, 8 query heads on 2 KV heads of 16, in single precision."""
    from kvcast_capture import safetensors_file
    from kvcast_capture.tensors import to_bytes
    from kvcast_train.policies.host_index import rotate

    generator = torch.Generator().manual_seed(11)
    prompt, steps, d = 300, 12, 16
    total = prompt + steps
    tensors = []

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    def add(name, kind, tensor, data):
        tensors.append(safetensors_file.Tensor(name, kind, tuple(tensor.shape), [data]))

    positions = torch.arange(total)
    add('query_positions', 'I64', positions, positions.numpy().tobytes())
    for layer in range(3):
        topics = normal(2, total // 12, d).repeat_interleave(12, 1)
        keys = rotate(topics + 0.7 * normal(2, total, d) + normal(2, 1, d), 10000.0)
        drift = torch.cumsum(normal(8, total, d), 1) / torch.arange(1, total + 1)[:, None].sqrt()
        queries = rotate(1.5 * drift + 0.7 * normal(8, total, d), 10000.0)
        for name, tensor in (('keys', keys), ('values', normal(2, total, d)), ('queries', queries)):
            add(f'layers.{layer}.{name}', 'F32', tensor, to_bytes(tensor, 'f32'))
    targets = [[20 * t + 3, 20 * t + 4] for t in range(steps)]
    safetensors_file.write(path, {
        'format': 'kvcast-trace/1', 'model': 'random', 'source': 'captured', 'layers': '0,1,2', 'n_layers': '3',
        'n_q_heads': '8', 'n_kv_heads': '2', 'head_dim': '16', 'rope_theta': '10000', 'prompt_tokens': str(prompt),
        'decode_steps': str(steps), 'targets': str(targets)}, tensors)


for number, (policy, chosen) in enumerate(CASES):
    setattr(SameSelections, f'test_{number:02}_{policy}',
            lambda self, name=policy, settings=chosen: self.compare(name, settings))

if __name__ == '__main__':
    support.main()
