"""Tables and pictures of a split."""
