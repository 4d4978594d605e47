"""The commands of the command line, one file per group.

Each file's `add` declares its commands to the parser; torch is imported only when one is called.
"""
