"""The names under which Flower finds our programs. Sites compare them literally: never rename them.

They are `fedloom.flower.server:app`, `fedloom.flower.site:app` and
`python -m fedloom.flower.guard`. Their code is in deploy/.
"""
