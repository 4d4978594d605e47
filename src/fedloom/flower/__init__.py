"""The names by which Flower finds our programs. Sites that run already compare them literally, so they stay.

`fedloom.flower.server:app`, `fedloom.flower.site:app` and `python -m fedloom.flower.guard`; all of it is in deploy/.
"""
