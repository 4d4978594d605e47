"""`fedloom.flower.site:app`: a site's program, under its name for Flower."""

from fedloom.deploy.site import app

__all__ = ["app"]
