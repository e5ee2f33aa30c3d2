"""SmolLM2-135M-Instruct with weights of 4 bits: a conversation in, the answer out."""

from __future__ import annotations

from pathlib import Path

import chat as console
import jinja2
import llama
from tokenizers import Tokenizer

from . import language
from .shared import Page

CONTEXT, PROMPT = console.CONTEXT, console.PROMPT
PROMPTS = ("What is the capital of France?", "Why is the sky blue?")


def make(folder: Path) -> Page:
    model, file = llama.load(console.find_weights(), CONTEXT)
    fields = file.fields
    llama.write_tokenizer(file, folder / "tokenizer.json")
    template = fields["tokenizer.chat_template"]
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")
    end = fields["tokenizer.ggml.eos_token_id"]
    begin = fields["tokenizer.ggml.bos_token_id"]
    run = language.write_program(folder, model, PROMPT, [end], begin)
    reader = Tokenizer.from_file(str(folder / "tokenizer.json"))
    expected = []
    for prompt in PROMPTS:
        messages = [{"role": "user", "content": prompt}]
        rendered = jinja2.Template(template).render(
            messages=messages, add_generation_prompt=True
        )
        ids = reader.encode(rendered).ids
        tokens = language.greedy(run, ids, PROMPT, [end])
        shown = reader.decode([token for token in tokens if token != end])
        expected.append(
            {
                "prompt": prompt,
                "rendered": rendered,
                "ids": ids,
                "tokens": tokens,
                "text": shown,
            }
        )
    more = {
        "tokenizer": "tokenizer.json",
        "template": {"file": "chat_template.jinja", "values": {}},
        "generation": {
            "context": CONTEXT,
            "prompt": PROMPT,
            "begin": begin,
            "ends": [end],
        },
    }
    methods = language.methods(PROMPT, model.config.vocab)
    return Page(methods, {"prompts": expected}, more)
