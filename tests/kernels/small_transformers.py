"""The parts of transformers that the measuring scripts use, for machines that have PyTorch alone: a small Llama whose attention
is called, masked and cached in the manner of transformers 5."""
import importlib.util
import sys
import types

import torch
from torch import nn

__version__ = '5.0.0'


class LlamaConfig:
    def __init__(self, **keys):
        self.__dict__.update(keys)


class Layer:
    keys = values = None


class DynamicCache:
    def __init__(self):
        self.layers = []

    def get_seq_length(self):
        return self.layers[0].keys.shape[2] if self.layers else 0

    def update(self, keys, values, index):
        if index == len(self.layers):
            self.layers.append(Layer())
        layer = self.layers[index]
        layer.keys = keys if layer.keys is None else torch.cat([layer.keys, keys], 2)
        layer.values = values if layer.values is None else torch.cat([layer.values, values], 2)
        return layer.keys, layer.values


class AttentionInterface:
    functions = {}

    @classmethod
    def register(cls, name, function):
        cls.functions[name] = function


def eager_attention_forward(module, query, key, value, attention_mask, scaling=None, **_):
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def rotated(x, positions):
    half = x.shape[-1] // 2
    angles = positions[0, :, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Attention(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.config, self.layer_idx = config, index
        self.heads = config.num_attention_heads, config.num_key_value_heads
        self.q, self.k, self.v = (nn.Linear(config.hidden_size, n * config.head_dim, bias=False)
                                  for n in (*self.heads, self.heads[1]))
        self.o = nn.Linear(self.heads[0] * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x, positions, cache, mask):
        q, k, v = (p(x).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = cache.update(rotated(k, positions), v, self.layer_idx)
        attend = AttentionInterface.functions.get(self.config._attn_implementation,
                                                  sys.modules[type(self).__module__].eager_attention_forward)
        out, _ = attend(self, rotated(q, positions), k, v, mask, scaling=self.config.head_dim ** -0.5)
        return self.o(out.flatten(2))


class LlamaForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Attention(config, i) for i in range(config.num_hidden_layers))
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    @classmethod
    def _from_config(cls, config, attn_implementation):
        config._attn_implementation = attn_implementation
        return cls(config)

    def set_attn_implementation(self, name):
        self.config._attn_implementation = name

    def forward(self, input_ids, past_key_values, position_ids, use_cache, logits_to_keep):
        new, held = input_ids.shape[1], past_key_values.get_seq_length()
        mask = None
        if self.config._attn_implementation in ('sdpa', 'eager'):
            mask = torch.full((new, held + new), -float('inf')).triu(held + 1)
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = x + layer(x, position_ids, past_key_values, mask)
        return types.SimpleNamespace(logits=self.head(x[:, -logits_to_keep:]))


def provide():
    """Makes this module answer to `import transformers` if that is not installed."""
    if importlib.util.find_spec('transformers') is None:
        sys.modules['transformers'] = sys.modules[__name__]
