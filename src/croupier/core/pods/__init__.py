"""Pod requests: parsing, effective totals, and the changes that admission makes."""
