"""kvcast's counter-based random numbers (sim/base/random.hpp), so that both draw the same numbers."""

from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Stream:
    """A stream whose i-th number is a function of the seed, the names of the stream, and i."""

    def __init__(self, seed: int):
        self._key = _mix((seed + _GOLDEN) & _MASK)

    def child(self, *names: int) -> "Stream":
        out = Stream(0)
        out._key = self._key
        for name in names:
            out._key = _mix(out._key ^ _mix((name + _GOLDEN) & _MASK))
        return out

    def bits(self, i: int) -> int:
        return _mix((self._key + (i + 1) * _GOLDEN) & _MASK)

    def uniform(self, i: int) -> float:
        return (self.bits(i) >> 11) * 2.0 ** -53

    def below(self, i: int, n: int) -> int:
        return (self.bits(i) * n) >> 64

    def normal(self, i: int) -> float:
        return NormalDist().inv_cdf(((self.bits(i) >> 12) + 0.5) * 2.0 ** -52)


def distinct(n: int, count: int, stream: Stream) -> list[int]:
    """Returns `count` distinct numbers below n: the beginning of a shuffle."""
    order = list(range(n))
    for i in range(count):
        j = i + stream.below(i, n - i)
        order[i], order[j] = order[j], order[i]
    return order[:count]


@lru_cache(maxsize=8)
def normals(seed: int, rows: int, columns: int) -> Tensor:
    """Returns the first rows · columns normal numbers of a seed's stream, row by row."""
    stream = Stream(seed)
    return torch.tensor([stream.normal(i) for i in range(rows * columns)], dtype=torch.float32).view(rows, columns)
