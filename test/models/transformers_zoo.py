"""Small models of well-known architectures, with random weights.

Each entry gives a module, example inputs and dynamic shapes. Sizes are small
because architecture is what is tested; heads, norms and masks are as published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

DIM = torch.export.Dim


@dataclass(frozen=True)
class Case:
    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any = None
    others: tuple[tuple[torch.Tensor, ...], ...] = ()


class Hidden(torch.nn.Module):
    """A model called by keyword that returns one tensor."""

    def __init__(self, model: torch.nn.Module, names: str, output: str) -> None:
        super().__init__()
        self.model = model.eval()
        self.names = names.split()
        self.output = output

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, inputs))
        return getattr(self.model(**named, return_dict=True), self.output)


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, 90, (batch, length))


def text(
    model: torch.nn.Module, output: str = "last_hidden_state", masked: bool = True
) -> Case:
    """A text model at any batch up to 4 and length up to 32."""
    names = "input_ids attention_mask" if masked else "input_ids"

    def inputs(batch: int, length: int) -> tuple[torch.Tensor, ...]:
        tokens = ids(batch, length)
        mask = torch.ones_like(tokens)
        if batch > 1:
            mask[0, length // 2 + 1 :] = 0
        return (tokens, mask) if masked else (tokens,)

    sizes = {0: DIM("batch", min=1, max=4), 1: DIM("length", min=2, max=32)}
    return Case(
        Hidden(model, names, output),
        inputs(3, 17),
        ((sizes,) * (2 if masked else 1),),
        (inputs(4, 32), inputs(1, 5)),
    )


def picture(
    model: torch.nn.Module, size: int, output: str = "last_hidden_state"
) -> Case:
    return Case(
        Hidden(model, "pixel_values", output),
        (torch.randn(2, 3, size, size),),
        (({0: DIM("batch", min=1, max=4)},),),
        ((torch.randn(1, 3, size, size),), (torch.randn(4, 3, size, size),)),
    )


SMALL = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
DECODER = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}


def bert() -> Case:
    return text(hf.BertModel(hf.BertConfig(**SMALL)))


def distilbert() -> Case:
    config = hf.DistilBertConfig(
        vocab_size=99, dim=64, n_layers=2, n_heads=4, hidden_dim=96
    )
    return text(hf.DistilBertModel(config))


def roberta() -> Case:
    return text(hf.RobertaModel(hf.RobertaConfig(**SMALL)))


def gpt2() -> Case:
    config = hf.GPT2Config(
        vocab_size=99, n_embd=64, n_layer=2, n_head=4, n_positions=64, use_cache=False
    )
    return text(hf.GPT2LMHeadModel(config), "logits", masked=False)


def llama() -> Case:
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER, use_cache=False))
    return text(model, "logits", masked=False)


def qwen3() -> Case:
    config = hf.Qwen3Config(**DECODER, head_dim=16, use_cache=False)
    return text(hf.Qwen3ForCausalLM(config), "logits", masked=False)


def gemma() -> Case:
    config = hf.GemmaConfig(**DECODER, head_dim=16, use_cache=False)
    return text(hf.GemmaForCausalLM(config), "logits", masked=False)


def t5() -> Case:
    config = hf.T5Config(
        vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    module = Hidden(
        hf.T5ForConditionalGeneration(config), "input_ids decoder_input_ids", "logits"
    )
    return Case(module, (ids(2, 11), ids(2, 5)))


def vit() -> Case:
    config = hf.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, image_size=32, patch_size=8,
    )  # fmt: skip
    return picture(hf.ViTModel(config), 32)


def dinov2() -> Case:
    config = hf.Dinov2Config(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=28,
        patch_size=7,
    )  # fmt: skip
    return picture(hf.Dinov2Model(config), 28)


def swin() -> Case:
    config = hf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
        window_size=4,
    )  # fmt: skip
    case = picture(hf.SwinModel(config), 32)
    return Case(case.module, case.inputs)


def clip() -> Case:
    vision = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    config = hf.CLIPConfig(
        text_config={**SMALL, "max_position_embeddings": 16, "eos_token_id": 98},
        vision_config=vision, projection_dim=32,
    )  # fmt: skip
    module = Hidden(
        hf.CLIPModel(config), "input_ids pixel_values attention_mask", "logits_per_text"
    )
    tokens = ids(2, 7)
    inputs = (tokens, torch.randn(3, 3, 32, 32), torch.ones_like(tokens))
    return Case(module, inputs)


def whisper() -> Case:
    config = hf.WhisperConfig(
        vocab_size=99, num_mel_bins=8, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
        decoder_ffn_dim=96, d_model=64, max_source_positions=32,
        max_target_positions=32, use_cache=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    module = Hidden(
        hf.WhisperForConditionalGeneration(config),
        "input_features decoder_input_ids",
        "logits",
    )
    return Case(module, (torch.randn(1, 8, 64), ids(1, 5)))


ZOO: dict[str, Callable[[], Case]] = {
    "BERT": bert,
    "DistilBERT": distilbert,
    "RoBERTa": roberta,
    "GPT-2": gpt2,
    "Llama": llama,
    "Qwen3": qwen3,
    "Gemma": gemma,
    "T5": t5,
    "ViT": vit,
    "DINOv2": dinov2,
    "CLIP": clip,
    "Whisper": whisper,
    "Swin": swin,
}
