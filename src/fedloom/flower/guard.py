"""`python -m fedloom.flower.guard`: how Flower's own programs are started. See deploy/guard.py."""

from fedloom.deploy.guard import main

if __name__ == "__main__":
    main()
