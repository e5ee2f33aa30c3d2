"""Files made for ExecuTorch's Vulkan backend: their bytes -> an ir.Graph as any."""
