"""The names by which Flower finds our programs. Sites compare them literally, so they stay.

They are `fedloom.flower.server:app`, `fedloom.flower.site:app` and
`python -m fedloom.flower.guard`; all that they do is in deploy/.
"""
