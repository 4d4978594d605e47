"""Stages that several papers share."""
