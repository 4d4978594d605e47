"""Ways of dealing samples out to clients, one module per family.

`fedloom.data.partition` lists them all.
"""
