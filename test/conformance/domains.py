"""The pytest plugin that the suite's models need: their packages, importable."""

import torch_domains

torch_domains.load("torchvision")
torch_domains.load("torchaudio")
