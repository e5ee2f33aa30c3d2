"""Passes that make one launch of several."""
