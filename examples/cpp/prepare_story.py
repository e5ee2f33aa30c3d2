"""Writes what `story` reads: python prepare_story.py FOLDER [FILE]

model.pte is stories15M with its plans, which run without Python, for prompts of up to
64 tokens a call and stories of up to 256; tokenizer.bin is its vocabulary. FILE is
where both come from, as in examples/stories.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import export_llm
import stories

CONTEXT, PROMPT = 256, 64


def main(folder: Path, file: Path = stories.DATA) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer = stories.load(file, CONTEXT)
    ends = [stories.BOS, stories.EOS]
    program, _ = export_llm.export(model, PROMPT, ends, stories.BOS, portable=True)
    (folder / "model.pte").write_bytes(program)
    tokenizer.write(folder / "tokenizer.bin")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
