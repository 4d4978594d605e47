"""Fixed networks, and the building blocks of networks. The package `networks` has their names."""

MAPS = ("image", "speech")  # the kinds of data whose samples have the shape [c, h, w]
