"""Ops over rows: reductions, norms, softmax, running totals."""
