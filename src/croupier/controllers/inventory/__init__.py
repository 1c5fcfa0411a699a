"""Which cards and nodes there are: from what agents, NFD and labels tell."""
