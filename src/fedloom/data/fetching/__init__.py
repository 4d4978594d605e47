"""Known data sets by name: where they live, fetched, verified, unpacked."""
