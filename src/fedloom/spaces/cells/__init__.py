"""DARTS cells, whole: what can be chosen, its network, what that costs and how it looks."""
