"""Known data sets by name: downloading, verifying and unpacking them."""
