"""Encoders of speech, from samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from transformers_zoo import Case, Hidden

SPEECH: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 48, "conv_dim": (16, 16), "conv_stride": (5, 2),
    "conv_kernel": (10, 3), "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "vocab_size": 32,
    "num_feat_extract_layers": 2,
}  # fmt: skip


def heard(model: torch.nn.Module, output: str = "last_hidden_state") -> Case:
    return Case(Hidden(model, "input_values", output), (torch.randn(2, 400),))


def wav2vec2() -> Case:
    return heard(hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**SPEECH)), "logits")


def hubert() -> Case:
    return heard(hf.HubertModel(hf.HubertConfig(**SPEECH)))


def conformer() -> Case:
    config = hf.Wav2Vec2ConformerConfig(**SPEECH, position_embeddings_type="relative")
    return heard(hf.Wav2Vec2ConformerModel(config))


ZOO: dict[str, Callable[[], Case]] = {
    "Wav2Vec2": wav2vec2,
    "HuBERT": hubert,
    "Conformer": conformer,
}
