"""Rewrites of the exported program itself, before ExecuTorch decomposes it."""
