"""Passes that move views to where they cost nothing."""
