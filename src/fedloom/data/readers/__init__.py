"""Readers of data sets, one file per format: how files become arrays."""
