"""The command itself, on a random Llama created by transformers. Needs PyTorch and transformers."""

import json
import tempfile
import unittest
from pathlib import Path

import support

support.need('torch', 'transformers')

import torch
import transformers

from kvcast_capture import __main__ as command
from kvcast_capture import safetensors_file, tensors


class Command(unittest.TestCase):
    def test_a_random_llama_is_captured(self):
        torch.manual_seed(3)
        config = transformers.LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                                          num_attention_heads=4, num_key_value_heads=2, rope_theta=10000.0)
        model = transformers.LlamaForCausalLM(config).eval()
        prompt = [(5 * i * i + i) % 97 for i in range(50)]
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            model.save_pretrained(folder / 'model')
            (folder / 'tokens.json').write_text(json.dumps(prompt))
            out = folder / 'trace.safetensors'
            code = command.main(['--model', str(folder / 'model'), '--tokens', str(folder / 'tokens.json'), '--out', str(out),
                                 '--layers', '0,2', '--window', '9', '--decode-steps', '6', '--block', '16', '--dtype', 'f32',
                                 '--device', 'cpu', '--hidden'])
            self.assertEqual(code, 0)
            self.assertTrue(support.check(out)['ok'])
            said = support.metadata(out)
            self.assertEqual((said['layers'], said['prompt_tokens'], said['decode_steps']), ('0,2', '50', '6'))
            whole = model.generate(torch.tensor([prompt]), max_new_tokens=6, min_new_tokens=6, do_sample=False)
            with torch.no_grad():
                cache = model(whole[:, :56], use_cache=True).past_key_values
            keys = cache.layers[2].keys if hasattr(cache, 'layers') else cache.key_cache[2]
            entry, data = safetensors_file.read_bytes(out, 'layers.2.keys')
            written = tensors.from_bytes(data, 'f32', entry['shape'][-1]).reshape(entry['shape'])
            self.assertTrue(torch.allclose(written, keys[0], atol=1e-4))


if __name__ == '__main__':
    support.main()
