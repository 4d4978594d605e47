"""The ways to deal samples out to clients, one module a family.

`fedloom.data.partition` names them all.
"""
