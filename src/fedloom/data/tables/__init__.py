"""Tables of numbers and categories: the sums that sites share, and the inputs of a network."""
