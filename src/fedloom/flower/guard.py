"""`python -m fedloom.flower.guard`: starts Flower's own programs. See deploy/guard.py."""

from fedloom.deploy.guard import main

if __name__ == "__main__":
    main()
