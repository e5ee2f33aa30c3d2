"""transformers' architectures, delegated whole and equal to eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import transformers_speech
import transformers_text
import transformers_vision
import transformers_zoo
from harness import check_op
from transformers_zoo import Case

Zoo = dict[str, Callable[[], Case]]
ZOO: Zoo = {
    **transformers_zoo.ZOO,
    **transformers_text.ZOO,
    **transformers_vision.ZOO,
    **transformers_speech.ZOO,
}
LONG: Zoo = {**transformers_text.LONG, **transformers_vision.LONG}
# Another model of the same kind of layers, which decides for them in `make test`.
LIKE = {
    "BERT": "MiniLM, which is one, in test_published.py",
    "DistilBERT": "MiniLM in test_published.py",
    "RoBERTa": "MiniLM in test_published.py",
    "Llama": "SmolLM2, which is one, in test_llm.py",
    "GPT-2": "the GPT of test/lowered/test_plain_attention.py",
    "Gemma": "Qwen3",
    "OLMoE": "Mixtral",
    "ViT": "torchvision's vit_b_16",
    "DINOv2": "torchvision's vit_b_16",
    "Swin": "torchvision's swin_v2_t",
    "RT-DETR": "DETR",
    "HuBERT": "Wav2Vec2",
}
NAMES = [
    pytest.param(name, marks=[pytest.mark.long] if name in {*LONG, *LIKE} else [])
    for name in (*ZOO, *LONG)
]


@pytest.mark.parametrize("name", NAMES)
def test_architecture_is_delegated_whole_and_equals_eager(name: str) -> None:
    case = {**ZOO, **LONG}[name]()
    check_op(
        case.module,
        *case.inputs,
        dynamic_shapes=case.dynamic_shapes,
        others=case.others,
        rtol=1e-3,
        atol=1e-4,
    )
