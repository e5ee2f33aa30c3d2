"""Quantize and dequantize, and products that read quantized values as they are."""
