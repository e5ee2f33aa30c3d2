"""Attention, its key and value caches, and rotary embedding."""
