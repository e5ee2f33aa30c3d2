"""Elements read and written by index tensors."""
