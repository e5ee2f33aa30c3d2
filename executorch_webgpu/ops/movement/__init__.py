"""Views, copies and new tensors: elements are moved or filled in, not computed."""
