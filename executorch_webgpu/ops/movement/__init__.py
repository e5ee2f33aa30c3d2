"""Views, copies and new tensors: nothing is computed from elements."""
