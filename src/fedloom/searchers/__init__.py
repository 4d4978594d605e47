"""How to choose: the steps of search algorithms, without clients, servers or files."""
