"""Quantized tensors: to and from them, and products that take them as they are."""
