"""stories15M: the beginning of a story in, how it goes on out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import llama
import stories
from tokenizers import Tokenizer
from torch import nn

from . import language
from .eight_bit import quantized
from .shared import Page

CONTEXT, PROMPT = 256, 64
PROMPTS = ("Once upon a time", "Lily found a red box")
ENDS = [stories.BOS, stories.EOS]
_SPACE = "\u2581"


def make(folder: Path) -> Page:
    model, vocabulary = stories.load(stories.DATA, CONTEXT)
    _quantize(model)
    tokenizer = tokenizer_json(vocabulary)
    text = json.dumps(tokenizer, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    run = language.write_program(folder, model, PROMPT, ENDS, stories.BOS)
    reader = Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = []
    for prompt in PROMPTS:
        ids = reader.encode(prompt).ids
        assert ids == vocabulary.encode(prompt), prompt
        tokens = language.greedy(run, ids, PROMPT, ENDS)
        shown = reader.decode(ids + tokens)
        expected.append({"prompt": prompt, "ids": ids, "tokens": tokens, "text": shown})
    more = {
        "tokenizer": "tokenizer.json",
        "generation": {
            "context": CONTEXT,
            "prompt": PROMPT,
            "begin": stories.BOS,
            "ends": ENDS,
        },
    }
    methods = language.methods(PROMPT, model.config.vocab)
    return Page(methods, {"prompts": expected}, more)


def onnx() -> tuple[Any, tuple[Any, ...], Any]:
    """The same weights, as floats. The caches are as at load in every run: what a run
    leaves in them is no output of the file."""
    model, _ = stories.load(stories.DATA, CONTEXT)
    _quantize(model)
    example, shapes = language.example(PROMPT)
    return language.Greedy(model.dequantized()).eval(), example, shapes


def _quantize(module: nn.Module) -> None:
    """Matrices to 8 bits; a weight that two layers share stays one."""
    made: dict[int, nn.Module] = {}

    def walk(module: nn.Module) -> None:
        for name, child in module.named_children():
            if not isinstance(child, llama.Weight):
                walk(child)
            elif child.weight.dim() == 2:
                made.setdefault(id(child), quantized(child.weight))
                setattr(module, name, made[id(child)])

    walk(module)


def tokenizer_json(vocabulary: stories.Tokenizer) -> dict[str, Any]:
    """The vocabulary as a Hugging Face `tokenizer.json`: pairs of pieces are joined in
    the order of the scores of what they make."""
    count = len(vocabulary.pieces)
    names = []
    for index, piece in enumerate(vocabulary.pieces):
        is_byte = 3 <= index < 259
        text = f"<0x{index - 3:02X}>" if is_byte else piece.decode(errors="replace")
        names.append(text.replace(" ", _SPACE))
    names[: stories.EOS + 1] = ["<unk>", "<s>", "</s>"]
    ids = {name: index for index, name in enumerate(names)}
    assert len(ids) == count, "names must be unique"
    order = sorted(range(259, count), key=lambda i: (-vocabulary.scores[i], i))
    merges = [
        [names[index][:at], names[index][at:]]
        for index in order
        for at in range(1, len(names[index]))
        if names[index][:at] in ids and names[index][at:] in ids
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(names[index], index) for index in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": _SPACE},
                {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {
                "<s>": {"id": "<s>", "ids": [stories.BOS], "tokens": ["<s>"]}
            },
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }


def _special(name: str, index: int) -> dict[str, Any]:
    """A token that no text is."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": name, "special": True, **flags}
