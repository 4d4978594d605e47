"""Formats of data sets, a file each: how they become arrays."""
