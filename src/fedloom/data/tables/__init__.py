"""Tables of numbers and categories: what sites tell of their columns, and what a network sees."""
