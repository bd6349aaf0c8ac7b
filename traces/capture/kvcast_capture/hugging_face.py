"""A Hugging Face decoder as drive.Decoder.

Models of transformers 4.48 and later compute attention through a table of functions, ALL_ATTENTION_FUNCTIONS, which they call
with queries and keys after RoPE and the whole cache, before heads are repeated. The entry in use is wrapped while a block is fed:
masks, cache and kernels remain the model's own. This module imports transformers only to load a model; everything else needs
only the table, so that tests can use a stand-in for the model.
"""

import hashlib
from contextlib import contextmanager
from typing import Any, Callable, Iterator, MutableMapping, Sequence

import torch

from .drive import Block
from .errors import CaptureError
from .plan import Shape
from .tensors import DTYPES, TensorBlock, cache_of

See = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor, torch.Tensor], None]


@contextmanager
def observed(functions: MutableMapping[str, Callable], name: str, see: See) -> Iterator[None]:
    """Calls see(module, query, key, value) before every attention computed by functions[name]."""
    inner = functions[name]

    def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any,
                  **kwargs: Any) -> Any:
        see(module, query, key, value)
        return inner(module, query, key, value, *args, **kwargs)

    functions[name] = attention
    try:
        yield
    finally:
        functions[name] = inner


def rope_theta(config: Any) -> float:
    """Returns RoPE's base, whose location depends on the version of transformers."""
    for place in (getattr(config, "rope_theta", None), (getattr(config, "rope_parameters", None) or {}).get("rope_theta"),
                  (getattr(config, "rope_scaling", None) or {}).get("rope_theta")):
        if place is not None:
            return float(place)
    raise CaptureError("the model's configuration has no rope_theta: kvcast traces need a model with RoPE")


def shape_of(config: Any) -> Shape:
    """Returns the shape of a model; config is that of the text model if the model has several parts."""
    heads = config.num_attention_heads
    return Shape(n_layers=config.num_hidden_layers, n_q_heads=heads,
                 n_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
                 head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads, hidden=config.hidden_size,
                 rope_theta=rope_theta(config))


class HuggingFaceDecoder:
    """One sequence of one model. functions: the table through which the model computes attention; cache: an empty one with a
    method update(keys, values, layer)."""

    def __init__(self, model: torch.nn.Module, functions: MutableMapping[str, Callable], cache: Any, dtype: str,
                 hidden: bool = False):
        config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        self.shape = shape_of(config)
        self._model, self._functions, self._cache, self._dtype = model, functions, cache, dtype
        self.vocabulary: int | None = getattr(config, "vocab_size", None)  # None: unknown
        self._implementation = config._attn_implementation
        if self._implementation not in functions:
            raise CaptureError(f"attention implementation {self._implementation!r} cannot be observed; "
                               f"known: {', '.join(sorted(functions))}")
        self._device = next(model.parameters()).device
        self._inputs: dict[int, torch.Tensor] = {}
        if hidden:
            self._watch_inputs()

    def feed(self, tokens: Sequence[int], begin: int, record: Callable[[int, Block], None]) -> int:
        seen: set[int] = set()

        def see(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
            layer = getattr(module, "layer_idx", None)
            if layer is None or layer in seen:
                raise CaptureError(f"attention of {type(module).__name__} (layer {layer}): a trace has one attention per layer")
            if query.shape[0] != 1 or key.shape[2] != begin + query.shape[2]:
                raise CaptureError(f"layer {layer} sees {key.shape[2]} keys at position {begin + query.shape[2] - 1}: "
                                   "a trace needs the whole sequence (does the cache keep only a window?)")
            seen.add(layer)
            record(layer, TensorBlock(self.shape, self._dtype, query[0], key[0], value[0], self._inputs.pop(layer, None)))

        ids = torch.tensor([list(tokens)], device=self._device)
        with torch.no_grad(), observed(self._functions, self._implementation, see):
            # The output head is applied to the last position only: the logits of a whole block would not fit.
            out = self._model.base_model(input_ids=ids, past_key_values=self._cache, use_cache=True)
            logits = self._model.get_output_embeddings()(out.last_hidden_state[:, -1])
        return int(logits.argmax(-1))

    def weights(self) -> str:
        """Returns a digest of some numbers of every parameter: models of the same shape differ in it."""
        digest = hashlib.sha256()
        for name, parameter in self._model.named_parameters():
            numbers = parameter.detach().flatten()
            some = numbers[:: max(1, len(numbers) // 16)].float().tolist()
            digest.update(f"{name} {some}\n".encode())
        return digest.hexdigest()[:16]

    def restore(self, layer: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        width = self.shape.head_dim
        self._cache.update(cache_of(keys, self._dtype, width, self._device),
                           cache_of(values, self._dtype, width, self._device), layer)

    def _watch_inputs(self) -> None:
        """Records attention inputs. Of a layer's modules that have a layer index, the last one called is its attention, so
        that its input is the one that remains."""

        def before(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
            hidden = kwargs.get("hidden_states", args[0] if args else None)
            if hidden is not None:
                self._inputs[module.layer_idx] = hidden[0]

        for module in self._model.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                module.register_forward_pre_hook(before, with_kwargs=True)


def load(name: str, dtype: str, device: str, hidden: bool) -> tuple[HuggingFaceDecoder, Any, str]:
    """Loads a decoder and its tokenizer (None if it has none); also returns the library versions used for the capture."""
    try:
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError as error:
        raise CaptureError(f"transformers 4.48 or later is required: {error}") from error
    model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=DTYPES[dtype], attn_implementation="sdpa")
    model = model.to(device).eval()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError):
        tokenizer = None
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return HuggingFaceDecoder(model, ALL_ATTENTION_FUNCTIONS, DynamicCache(), dtype, hidden), tokenizer, versions
