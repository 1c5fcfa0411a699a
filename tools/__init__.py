"""Generators of checked-in files: CRDs, protobuf messages, the chart, the reference."""
