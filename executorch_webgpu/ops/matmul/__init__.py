"""Matrix products, for GPUs and for CPU adapters."""
