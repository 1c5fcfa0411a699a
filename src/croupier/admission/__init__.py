"""GUARD. What becomes of a pod before it is stored: repaired, marked, or refused with a sentence."""
