"""Sorting and what is read off sorted rows."""
