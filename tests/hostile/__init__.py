"""Attacks of a tenant who may do everything in one namespace; docs/security.md lists them."""
