"""GPT-2 as a megatron-core GPTModel, with parameter names and initial values that no topology changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from edgc.suite.backends.gpt2 import initial_value
from edgc.suite.backends.megatron.process import Place
from edgc.suite.config import RunSpec


def transformer_config(spec: RunSpec) -> TransformerConfig:
    """Megatron's configuration of the model. Fused CUDA kernels stay off: the local layer spec needs none."""
    bf16 = spec.training.precision == "bf16"
    return TransformerConfig(
        num_layers=spec.model.num_layers,
        hidden_size=spec.model.hidden_size,
        num_attention_heads=spec.model.num_heads,
        hidden_dropout=spec.model.dropout,
        attention_dropout=spec.model.dropout,
        tensor_model_parallel_size=spec.parallel.tensor,
        pipeline_model_parallel_size=spec.parallel.pipeline,
        pipeline_dtype=torch.bfloat16 if bf16 else torch.float32,
        params_dtype=torch.bfloat16 if bf16 else torch.float32,
        bf16=bf16,
        use_cpu_initialization=True,
        batch_p2p_sync=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        recompute_granularity="full" if spec.training.recompute else None,
        recompute_method="uniform" if spec.training.recompute else None,
        recompute_num_layers=1 if spec.training.recompute else None,
    )


def build_model(spec: RunSpec, place: Place, vocab_size: int) -> torch.nn.Module:
    """This stage's part of the model, initialised, on its device and in its precision."""
    config = transformer_config(spec)
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=spec.padded_vocabulary(vocab_size),
        max_sequence_length=spec.model.seq_length,
        pre_process=place.first_stage,
        post_process=place.last_stage,
        parallel_output=True,
        share_embeddings_and_output_weights=True,
        position_embedding_type="learned_absolute",
    )
    initialise(model, spec.seed, spec.model.num_layers)
    model.to(place.device)
    return Float16Module(config, model) if config.bf16 else model


def global_names(
    model: torch.nn.Module, stage: int, num_stages: int, num_layers: int
) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Parameters of this stage under names with the layer's number in the whole model.

    The last stage's copy of the tied word embedding is `output_layer.weight` there and
    `embedding.word_embeddings.weight` where one stage holds both.
    """
    offset = stage * (num_layers // num_stages)
    for name, parameter in model.named_parameters():
        bare = re.sub(r"^(module\.)+", "", name)
        yield re.sub(r"(?<=decoder\.layers\.)\d+", lambda m: str(int(m[0]) + offset), bare), parameter


def initialise(model: torch.nn.Module, seed: int, num_layers: int) -> None:
    """GPT-2's initial values in place, equal for every topology.

    A tensor-parallel rank draws the whole matrix and keeps its part.
    """
    stage = parallel_state.get_pipeline_model_parallel_rank()
    stages = parallel_state.get_pipeline_model_parallel_world_size()
    with torch.no_grad():
        for name, parameter in global_names(model, stage, stages, num_layers):
            whole = initial_value(name, _whole_shape(parameter), seed, num_layers)
            parameter.copy_(_shard(whole, parameter))


def is_split(parameter: torch.nn.Parameter) -> bool:
    """Whether this is a tensor-parallel rank's part of a larger parameter."""
    return (
        getattr(parameter, "tensor_model_parallel", False) and parallel_state.get_tensor_model_parallel_world_size() > 1
    )


def _whole_shape(parameter: torch.nn.Parameter) -> list[int]:
    shape = list(parameter.shape)
    if is_split(parameter):
        shape[parameter.partition_dim] *= parallel_state.get_tensor_model_parallel_world_size()  # type: ignore[attr-defined]
    return shape


def _shard(whole: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    if not is_split(parameter):
        return whole
    parts = whole.chunk(parallel_state.get_tensor_model_parallel_world_size(), dim=parameter.partition_dim)  # type: ignore[attr-defined]
    return parts[parallel_state.get_tensor_model_parallel_rank()]
