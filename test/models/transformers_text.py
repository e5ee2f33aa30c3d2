"""Text models of other kinds than attention and dense layers alone: mixtures of
experts, state spaces and recurrences."""

from __future__ import annotations

from collections.abc import Callable

import transformers as hf
from transformers_zoo import DECODER, SMALL, Case, Hidden, ids, text

EXPERTS = {"num_experts_per_tok": 2, "use_cache": False}


def fixed(model: hf.PreTrainedModel, length: int = 7) -> Case:
    """A decoder at one size: its loops over the sequence are unrolled."""
    return Case(Hidden(model, "input_ids", "logits"), (ids(2, length),))


def mixtral() -> Case:
    config = hf.MixtralConfig(**DECODER, **EXPERTS, num_local_experts=4)
    return text(hf.MixtralForCausalLM(config), "logits", masked=False)


def olmoe() -> Case:
    config = hf.OlmoeConfig(**DECODER, **EXPERTS, num_experts=4)
    return fixed(hf.OlmoeForCausalLM(config))


def deepseek() -> Case:
    config = hf.DeepseekV3Config(
        **SMALL, **EXPERTS, num_key_value_heads=4, moe_intermediate_size=32,
        n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1,
        first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=16,
    )  # fmt: skip
    return fixed(hf.DeepseekV3ForCausalLM(config))


def qwen3_next() -> Case:
    config = hf.Qwen3NextConfig(
        **DECODER, **EXPERTS, head_dim=16, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, num_experts=4, linear_num_value_heads=4,
        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    return fixed(hf.Qwen3NextForCausalLM(config))


def mamba() -> Case:
    config = hf.MambaConfig(
        vocab_size=99, hidden_size=32, state_size=8, num_hidden_layers=2,
        use_cache=False,
    )  # fmt: skip
    return fixed(hf.MambaForCausalLM(config))


def mamba2() -> Case:
    config = hf.Mamba2Config(
        vocab_size=99, hidden_size=32, state_size=8, num_hidden_layers=2, num_heads=4,
        head_dim=16, n_groups=2, chunk_size=4, use_cache=False,
    )  # fmt: skip
    return fixed(hf.Mamba2ForCausalLM(config))


def rwkv() -> Case:
    config = hf.RwkvConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32,
        intermediate_size=48, context_length=16, use_cache=False,
        rescale_every=0,  # else the first call changes the weights
    )  # fmt: skip
    return fixed(hf.RwkvForCausalLM(config), length=5)


ZOO: dict[str, Callable[[], Case]] = {
    "Mixtral": mixtral,
    "OLMoE": olmoe,
    "DeepSeek-V3": deepseek,
    "Mamba": mamba,
    "Mamba-2": mamba2,
    "RWKV": rwkv,
}
# Its linear attention is unrolled over a chunk of 64 tokens.
LONG: dict[str, Callable[[], Case]] = {
    "Qwen3-Next": qwen3_next,
}
