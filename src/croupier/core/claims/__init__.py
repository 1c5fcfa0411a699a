"""What holders get and keep: claims, Reservations, their end, rebuilding a ledger, the audit."""
