"""`fedloom.flower.server:app`: the server's program, by the name that Flower is told."""

from fedloom.deploy.server import app

__all__ = ["app"]
