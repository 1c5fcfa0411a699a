"""The reference in docs/reference, written from what is described elsewhere: kinds, metrics, verbs.

It stands in the topmost room because it reads all the others; it is no verb.
"""
