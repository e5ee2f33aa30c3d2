"""What runs a plan: the delegate that ExecuTorch calls, its device and buffers."""
