"""NAS-Bench-201's cells, whole: what can be chosen, its network, what that costs and how it looks."""
