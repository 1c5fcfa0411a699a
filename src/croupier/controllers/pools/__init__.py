"""What pools have, give and were promised, and how they change."""
