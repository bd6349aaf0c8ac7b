"""Head profiles of `kvcast profile`: scores of heads and errors of layers, measured beforehand on traces."""

from typing import Any

import torch
from torch import Tensor

from .base import Shape


def read_profile(path: str | None, shape: Shape) -> dict[str, Any]:
    """Returns `heads`, which maps kind and layer to one score per query head, and `errors`, which maps layers to errors. Raises
    ValueError if there is no file or if it belongs to another model."""
    if path is None:
        raise ValueError("profile: needs a file written by `kvcast profile`")
    import yaml  # only needed by policies with a profile

    with open(path, encoding="utf-8") as file:
        profile = yaml.safe_load(file)
    for key in ("n_layers", "n_q_heads", "n_kv_heads"):
        if profile[key] != getattr(shape, key):
            raise ValueError(f"{path}: has {key} {profile[key]}, the model {getattr(shape, key)}")
    return {"heads": {kind: {entry["layer"]: entry["scores"] for entry in layers}
                      for kind, layers in profile.get("head_scores", {}).items()},
            "errors": {entry["layer"]: entry["error"] for entry in profile.get("layer_errors", [])}}


def nearest(by_layer: dict[int, Any], layer: int) -> Any:
    """Returns the entry of the nearest layer that has one; the lower of two equally near layers."""
    return by_layer[min(by_layer, key=lambda known: (abs(known - layer), known))]


def head_scores(profile: dict[str, Any], kind: str, layer: int) -> list[float]:
    """Returns one score per query head."""
    return nearest(profile["heads"][kind], layer)


def layer_shares(by_layer: dict[int, float], layers: int) -> list[float]:
    """Returns the share of each layer of the model in the total error; shares add up to 1."""
    errors = [nearest(by_layer, layer) for layer in range(layers)]
    total = sum(errors)
    return [error / total if total > 0 else 1 / layers for error in errors]


def kv_head_scores(profile: dict[str, Any], kind: str, shape: Shape, largest: bool) -> list[list[float]]:
    """Returns, for each layer, one score per KV head: the largest or the mean of those of its query heads."""
    out = []
    for layer in range(shape.n_layers):
        scores = head_scores(profile, kind, layer)
        groups = [scores[i: i + shape.group] for i in range(0, len(scores), shape.group)]
        out.append([max(group) if largest else sum(group) / len(group) for group in groups])
    return out


def best_heads(scores: list[list[float]], number: int) -> Tensor:
    """Returns the best heads over all layers as a mask [layers, heads]; ties go to the lower layer, then to the lower head."""
    places = [(layer, head) for layer, row in enumerate(scores) for head in range(len(row))]
    places.sort(key=lambda place: -scores[place[0]][place[1]])
    mask = torch.zeros(len(scores), len(scores[0]), dtype=torch.bool)
    for layer, head in places[:number]:
        mask[layer, head] = True
    return mask
