"""Augmentation of training batches."""
