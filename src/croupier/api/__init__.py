"""TRANSLATE. Wire types of our kinds and of the few core kinds we read; CRDs are generated from them."""
