"""A split, drawn for a person."""
