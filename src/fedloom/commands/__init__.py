"""The commands, a file a group.

`add` tells the parser; torch is imported only when a command is called.
"""
