"""Passes that make one dispatch of several."""
