"""Figures of the report: pure functions from numbers to SVG."""
