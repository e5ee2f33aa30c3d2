"""Sorting, and ops that choose an element of a sorted row."""
