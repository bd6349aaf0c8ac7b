"""A Llama-shaped decoder: RMS norms, grouped-query attention with RoPE, a gated feed-forward network, tied embeddings.

Attention is passed in as a function, so that training, capturing and decoding under a policy share one forward pass."""

from dataclasses import asdict, dataclass
from typing import Any, Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .policies import Shape

# attend(layer, query [B, Hq, n, d], key and value [B, Hkv, n, d] of the new positions, after RoPE) -> [B, Hq, n, d]
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Config:
    vocabulary: int
    layers: int
    hidden: int
    n_q_heads: int
    n_kv_heads: int
    head_dim: int
    ffn: int
    rope_theta: float = 10000.0

    @property
    def shape(self) -> Shape:
        return Shape(self.layers, self.n_q_heads, self.n_kv_heads, self.head_dim, self.rope_theta)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Applies RoPE to [B, heads, n, d] at positions [n]; pairs are halves of the head dimension, as in Llama."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = positions[:, None].float() * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def causal(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Computes full causal attention within the given positions, all of which are new."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    if hasattr(functional, "scaled_dot_product_attention"):  # PyTorch 2
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    n = query.shape[2]
    future = torch.ones(n, n, dtype=torch.bool, device=query.device).triu(1)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ value


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self, config: Config, index: int):
        super().__init__()
        self._config, self._index = config, index
        heads = config.n_q_heads + 2 * config.n_kv_heads
        self.attention_norm, self.ffn_norm = Norm(config.hidden), Norm(config.hidden)
        self.qkv = nn.Linear(config.hidden, heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.n_q_heads * config.head_dim, config.hidden, bias=False)
        self.gate_up = nn.Linear(config.hidden, 2 * config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        c = self._config
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (-1, c.head_dim)).transpose(1, 2)
        query, key, value = heads.split((c.n_q_heads, c.n_kv_heads, c.n_kv_heads), 1)
        query, key = (rotate(part, positions, c.rope_theta) for part in (query, key))
        x = x + self.out(attend(self._index, query, key, value).to(x.dtype).transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = Norm(config.hidden)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_stream = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5 if into_stream else 0.02)
        # A component shared by all words. Through RoPE, queries and keys of this component alone give heads that attend by
        # distance; without biases, a model would have to learn such a component first.
        with torch.no_grad():
            self.embed.weight += 0.02 * torch.randn(config.hidden)

    def forward(self, tokens: Tensor, first: int = 0, attend: Attend = causal) -> Tensor:
        """Returns hidden states [B, n, hidden] of tokens [B, n] at positions `first` and up."""
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, positions, attend)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.embed.weight).float()
