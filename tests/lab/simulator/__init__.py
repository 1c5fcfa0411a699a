"""Tests of the market simulator."""
