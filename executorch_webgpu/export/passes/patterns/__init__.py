"""Passes that replace a formula that was written out by the op for it."""
