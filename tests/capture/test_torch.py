"""The hooks, with a stand-in that attends through a table of functions like Hugging Face's decoders. Needs PyTorch."""

import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import support

support.need('torch')

import torch
import torch.nn as nn

from kvcast_capture import drive, safetensors_file, tensors
from kvcast_capture.errors import CaptureError
from kvcast_capture.hugging_face import HuggingFaceDecoder, observed, rope_theta
from kvcast_capture.plan import Plan

CONFIG = SimpleNamespace(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=32, head_dim=8,
                         rope_theta=10000.0, vocab_size=50, _attn_implementation='sdpa')


def rotate(x: torch.Tensor, begin: int) -> torch.Tensor:
    """Applies RoPE to [batch, heads, rows, d]; pairs are halves, as in Llama."""
    d = x.shape[-1]
    angles = torch.arange(begin, begin + x.shape[2])[:, None] / CONFIG.rope_theta ** (torch.arange(0, d, 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def attend(module, query, key, value, attention_mask=None, scaling=None, **kwargs):
    """Computes causal attention of the last rows over the whole cache."""
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    rows, columns = query.shape[2], key.shape[2]
    scores = query @ key.transpose(2, 3) * scaling
    future = torch.arange(columns)[None] > torch.arange(columns - rows, columns)[:, None]
    weights = scores.masked_fill(future, float('-inf')).softmax(-1)
    return (weights @ value).transpose(1, 2), None


FUNCTIONS = {'sdpa': attend}


class Cache:
    def __init__(self):
        self.keys, self.values = {}, {}

    def length(self):
        return self.keys[0].shape[2] if self.keys else 0

    def update(self, keys, values, layer):
        for held, new in ((self.keys, keys), (self.values, values)):
            held[layer] = torch.cat((held[layer], new), 2) if layer in held else new
        return self.keys[layer], self.values[layer]


class Attention(nn.Module):
    def __init__(self, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(32, n * 8, bias=False) for n in (4, 2, 2))
        self.o_proj = nn.Linear(32, 32, bias=False)

    def forward(self, hidden_states, past_key_values, begin):
        q, k, v = (p(hidden_states).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        keys, values = past_key_values.update(rotate(k, begin), v, self.layer_idx)
        out, _ = FUNCTIONS['sdpa'](self, rotate(q, begin), keys, values, None, scaling=8 ** -0.5)
        self.attended = out[0]  # [rows, heads, d], for inspection by the tests
        return self.o_proj(out.flatten(2))


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(Attention(i) for i in range(3))

    def forward(self, input_ids, past_key_values, use_cache):
        x, begin = self.embed(input_ids), past_key_values.length()
        for layer in self.layers:
            x = x + layer(hidden_states=x, past_key_values=past_key_values, begin=begin)
        return SimpleNamespace(last_hidden_state=x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.config, self.base_model, self.lm_head = CONFIG, Base(), nn.Linear(32, 50, bias=False)
        for p in self.parameters():
            nn.init.normal_(p, std=0.4)

    def get_output_embeddings(self):
        return self.lm_head


PROMPT = [(7 * i * i + 3 * i) % 50 for i in range(40)]


class Hooks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def plan(self, decoder, **changes):
        given = dict(shape=decoder.shape, layers=(0, 2), kv_heads=(0, 1), prompt_tokens=40, decode_steps=5, window=8, block=16,
                     dtype='f32')
        return Plan(**{**given, **changes})

    def capture(self, model, out='t.safetensors', decoder=None, **changes):
        decoder = decoder or HuggingFaceDecoder(model, FUNCTIONS, Cache(), changes.get('dtype', 'f32'))
        path = self.path / out
        fed = drive.capture(decoder, self.plan(decoder, **changes), PROMPT, path, self.path / 'work', {'model': 'stand-in'})
        return path, fed

    def tensor(self, path, name):
        entry, data = safetensors_file.read_bytes(path, name)
        kind = {'F32': 'f32', 'BF16': 'bf16', 'F16': 'f16'}[entry['dtype']]
        return tensors.from_bytes(data, kind, entry['shape'][-1]).reshape(entry['shape'])

    def test_other_weights_do_not_continue_a_capture(self):
        def weights(model):
            return HuggingFaceDecoder(model, FUNCTIONS, Cache(), 'f32').weights()

        other = Model()
        other.base_model.layers[1].k_proj.weight.data += 1
        self.assertEqual(weights(Model()), weights(Model()))
        self.assertNotEqual(weights(Model()), weights(other))

    def test_attention_of_the_trace_is_attention_of_the_model(self):
        model = Model()
        path, fed = self.capture(model)
        found = support.check(path)
        self.assertTrue(found['ok'])
        self.assertEqual([f for f in found['findings'] if 'RoPE' in f['what']], [])
        # The reference processes the whole sequence at once, with an empty cache.
        with torch.no_grad():
            out = model.base_model(torch.tensor([PROMPT + fed]), Cache(), True)
            greedy = model.lm_head(out.last_hidden_state[0]).argmax(-1)
        self.assertEqual(fed, greedy[39:44].tolist())
        for layer in (0, 2):
            keys, values, queries = (self.tensor(path, f'layers.{layer}.{kind}') for kind in ('keys', 'values', 'queries'))
            for step in range(5):
                for head in range(4):
                    seen = slice(0, 41 + step)
                    weights = (queries[head, 8 + step] @ keys[head // 2, seen].T / 8 ** 0.5).softmax(-1)
                    want = model.base_model.layers[layer].attended[40 + step, head]
                    torch.testing.assert_close(weights @ values[head // 2, seen], want, rtol=1e-4, atol=1e-4)

    def test_a_capture_resumes_from_a_rebuilt_cache(self):
        model = Model()
        whole, fed = self.capture(model)

        class Stops(HuggingFaceDecoder):
            left = 4

            def feed(self, *args):
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
                return super().feed(*args)

        with self.assertRaises(KeyboardInterrupt):  # after 3 blocks of the prompt and one step
            self.capture(model, 'r.safetensors', Stops(model, FUNCTIONS, Cache(), 'f32'))
        again, fed_again = self.capture(model, 'r.safetensors')
        self.assertEqual(fed_again, fed)
        self.assertEqual(again.read_bytes(), whole.read_bytes())

    def test_bfloat16_is_captured(self):
        model = Model()
        path, _ = self.capture(model, dtype='bf16')
        entry, _ = safetensors_file.read_bytes(path, 'layers.0.values')
        self.assertEqual(entry['dtype'], 'BF16')
        exact = self.tensor(self.capture(model, 'f.safetensors')[0], 'layers.0.values')
        self.assertTrue(torch.equal(self.tensor(path, 'layers.0.values'), exact.to(torch.bfloat16)))
        self.assertTrue(support.check(path)['ok'])

    def test_hidden_states_are_the_inputs_of_attention(self):
        if not hasattr(nn.Module, 'register_forward_hook') or torch.__version__ < '2':
            self.skipTest('hooks see keyword arguments from PyTorch 2.0 on')
        model = Model()
        decoder = HuggingFaceDecoder(model, FUNCTIONS, Cache(), 'f32', hidden=True)
        path, fed = self.capture(model, decoder=decoder, hidden=True)
        hidden = self.tensor(path, 'layers.0.hidden')
        self.assertTrue(torch.equal(hidden, model.base_model.embed(torch.tensor(PROMPT + fed))[32:]))

    def test_the_table_is_restored(self):
        table = {'sdpa': attend}
        with self.assertRaises(ZeroDivisionError), observed(table, 'sdpa', lambda *seen: None):
            self.assertIsNot(table['sdpa'], attend)
            1 / 0
        self.assertIs(table['sdpa'], attend)

    def test_unsupported_models_are_refused(self):
        model = Model()
        with self.assertRaisesRegex(CaptureError, "'flash'.*known: sdpa"):
            model.config = SimpleNamespace(**{**vars(CONFIG), '_attn_implementation': 'flash'})
            HuggingFaceDecoder(model, FUNCTIONS, Cache(), 'f32')
        with self.assertRaisesRegex(CaptureError, 'rope_theta'):
            rope_theta(SimpleNamespace())
        self.assertEqual(rope_theta(SimpleNamespace(rope_parameters={'rope_theta': 5e5})), 5e5)
        short = Model()
        decoder = HuggingFaceDecoder(short, FUNCTIONS, Cache(), 'f32')
        with self.assertRaisesRegex(CaptureError, 'sees 4 keys at position 9'):
            decoder.feed([1, 2, 3, 4], 6, lambda layer, block: None)
        with self.assertRaisesRegex(CaptureError, r'values are \[2, 3, 4\]'):
            tensors.TensorBlock(decoder.shape, 'f32', torch.zeros(4, 3, 8), torch.zeros(2, 3, 8), torch.zeros(2, 3, 4))


if __name__ == '__main__':
    support.main()
