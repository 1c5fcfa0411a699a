"""Local copies of objects, kept current by list and watch."""
