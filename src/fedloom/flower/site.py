"""`fedloom.flower.site:app`: a site's program, by the name that Flower is told."""

from fedloom.deploy.site import app

__all__ = ["app"]
