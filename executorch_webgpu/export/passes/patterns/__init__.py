"""Passes that recognise what was written out and put the op for it in its place."""
