"""What a pipeline stage holds of a GPT-2, as the training engine has it, and what of it is exchanged together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import groupby, product
from math import prod

from edgc.suite.config import Model, RunSpec

Shape = tuple[int, ...]
LAYERS = "decoder.layers."
GPT2_VOCABULARY = 50257  #: tokens of GPT-2's own tokenizer


def vocabulary(spec: RunSpec) -> int:
    """Rows of the word embedding: the corpus's tokens, padded."""
    return spec.padded_vocabulary(spec.corpus.tokenizer.vocab_size or GPT2_VOCABULARY)


def stage_parameters(model: Model, vocabulary: int, tensor: int, stages: int, stage: int) -> dict[str, Shape]:
    """A rank's parameters by name, in the order of the forward pass; `vocabulary` is padded.

    The last of several stages has a copy of the word embedding of its own, as output layer.
    """
    return dict(_held_of(model, vocabulary, tensor, stages, stage)[0])


def stage_count(model: Model, vocabulary: int, tensor: int, stages: int, stage: int) -> int:
    """Parameters in all of them."""
    return _held_of(model, vocabulary, tensor, stages, stage)[1]


def _held_of(model: Model, *place: int) -> tuple[dict[str, Shape], int]:
    return _held(model.hidden_size, model.seq_length, model.num_layers, model.experts, *place)


@cache  # a plan asks thousands of times, of a few
def _held(
    h: int, seq_length: int, layers: int, experts: int, vocabulary: int, tensor: int, stages: int, stage: int
) -> tuple[dict[str, Shape], int]:
    shapes: dict[str, Shape] = {}
    if stage == 0:
        shapes["embedding.word_embeddings.weight"] = (vocabulary // tensor, h)
        shapes["embedding.position_embeddings.weight"] = (seq_length, h)
    per_stage = layers // stages
    for layer in range(stage * per_stage, (stage + 1) * per_stage):
        shapes |= {f"{LAYERS}{layer}.{name}": shape for name, shape in _layer(h, tensor, experts).items()}
    if stage == stages - 1:
        shapes |= {"decoder.final_layernorm.weight": (h,), "decoder.final_layernorm.bias": (h,)}
        if stages > 1:
            shapes["output_layer.weight"] = (vocabulary // tensor, h)
    return shapes, count(shapes)


def layer_matrices(model: Model, tensor: int, stages: int) -> list[tuple[int, int]]:
    """Shapes of all matrices in a stage's layers, on one tensor-parallel rank."""
    of_layer = [shape for shape in _layer(model.hidden_size, tensor, model.experts).values() if len(shape) == 2]
    return of_layer * (model.num_layers // stages)


def _layer(h: int, tensor: int, experts: int) -> dict[str, Shape]:
    mlp = {
        "linear_fc1.weight": (4 * h // tensor, h),
        "linear_fc1.bias": (4 * h // tensor,),
        "linear_fc2.weight": (h, 4 * h // tensor),
        "linear_fc2.bias": (h,),
    }
    mlps: dict[str, Shape] = {f"mlp.{name}": shape for name, shape in mlp.items()}
    if experts:
        each = product(range(experts), mlp.items())
        mlps = {"mlp.router.weight": (experts, h)}
        mlps |= {f"mlp.experts.local_experts.{number}.{name}": shape for number, (name, shape) in each}
    return {
        "input_layernorm.weight": (h,),
        "input_layernorm.bias": (h,),
        "self_attention.linear_proj.weight": (h, h // tensor),
        "self_attention.linear_proj.bias": (h,),
        "self_attention.linear_qkv.weight": (3 * h // tensor, h),
        "self_attention.linear_qkv.bias": (3 * h // tensor,),
        "pre_mlp_layernorm.weight": (h,),
        "pre_mlp_layernorm.bias": (h,),
    } | mlps


def count(shapes: dict[str, Shape]) -> int:
    """Parameters in all of them."""
    return sum(prod(shape) for shape in shapes.values())


def fill(shapes: Mapping[str, Shape], full: int) -> list[dict[str, Shape]]:
    """Buckets of at least `full` parameters (the last may have fewer), as megatron fills them, from the last one on."""
    buckets: list[dict[str, Shape]] = []
    filled = full
    for name, shape in reversed([*shapes.items()]):
        if filled >= full:
            buckets.append({})
            filled = 0
        buckets[-1][name] = shape
        filled += prod(shape)
    return buckets


def units(shapes: Mapping[str, Shape]) -> list[dict[str, Shape]]:
    """What FSDP2 shards as one: each layer, from the last to the first, then all that is in no layer (the root)."""
    layers = [name for name in shapes if name.startswith(LAYERS)]
    by_layer = groupby(reversed(layers), key=lambda name: name[len(LAYERS) :].split(".")[0])
    root = {name: shape for name, shape in shapes.items() if not name.startswith(LAYERS)}
    return [*({name: shapes[name] for name in own} for _, own in by_layer), root]
