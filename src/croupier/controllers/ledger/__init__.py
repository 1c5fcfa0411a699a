"""Controllers of the ledger: cards, holders, Reservations, audit and status of every node."""
