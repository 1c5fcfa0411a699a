"""Parts that several groups of controllers use; it imports no group."""
