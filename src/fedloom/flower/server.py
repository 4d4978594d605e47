"""`fedloom.flower.server:app`: the server's program, under its name for Flower."""

from fedloom.deploy.server import app

__all__ = ["app"]
