"""The capacity manager, which stores the ledgers in the API server or in memory behind one protocol."""
