"""Ops that compute each element by itself, as WGSL formulas."""
