"""Fixed networks and what networks are made of. By name they are found in networks/."""

MAPS = ("image", "speech")  # kinds of data whose samples are [c,h,w]
