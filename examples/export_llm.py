"""Exports a GGUF Llama to a .pte that runs on WebGPU: once, for any prompt length.

    python examples/export_llm.py model.gguf model.pte [--context 1024] [--prompt 256]

Beside the program it writes `tokenizer.json`, which ExecuTorch's runners read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import llama
import torch
from executorch.exir import to_edge_transform_and_lower

from executorch_webgpu import WebGPUPartitioner


def export(
    model: llama.Llama, prompt: int, eos: list[int], bos: int, portable: bool = False
) -> tuple[bytes, WebGPUPartitioner]:
    """The program's bytes, with plans for apps without Python if it is to be portable,
    and the partitioner, which has the report."""
    partitioner = WebGPUPartitioner(portable=portable)
    length = torch.export.Dim("length", min=1, max=prompt)
    example = (torch.zeros(1, 3, dtype=torch.long), torch.arange(3))
    with torch.no_grad():
        program = torch.export.export(
            model, example, dynamic_shapes=({1: length}, {0: length})
        )
    lowered = to_edge_transform_and_lower(
        program,
        partitioner=[partitioner],
        constant_methods=model.metadata(prompt, eos, bos),
    )
    return bytes(lowered.to_executorch().buffer), partitioner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("pte", type=Path)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prompt", type=int, default=256, help="longest prefill")
    args = parser.parse_args()
    model, file = llama.load(args.gguf, args.context)
    eos = file.fields["tokenizer.ggml.eos_token_id"]
    bos = file.fields["tokenizer.ggml.bos_token_id"]
    data, partitioner = export(model, args.prompt, [eos], bos)
    args.pte.write_bytes(data)
    llama.write_tokenizer(file, args.pte.with_name("tokenizer.json"))
    print(partitioner.report)
    print(f"{args.pte}: {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
