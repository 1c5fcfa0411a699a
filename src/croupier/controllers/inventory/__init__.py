"""The inventory: GPUDevice and GPUNodeInventory objects from agent reports, NFD and labels."""
