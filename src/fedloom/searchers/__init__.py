"""The steps of search algorithms, independent of clients, servers and files."""
