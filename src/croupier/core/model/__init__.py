"""The values every decision speaks of, once: cards, sharing, requests, pods, conditions, refusals."""
