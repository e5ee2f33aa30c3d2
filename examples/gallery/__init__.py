"""The gallery's models: each is exported to a folder from which a page runs it."""
