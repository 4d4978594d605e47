"""Gradients of a linear classifier, written down without autograd."""

import numpy as np


def chances(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def gradient(w: np.ndarray, x, y) -> np.ndarray:
    """Of the mean cross-entropy: (p − onehot)ᵀ x / n."""
    inputs = np.array(x, dtype=float)
    return (chances(inputs @ w.T) - np.eye(len(w))[y]).T @ inputs / len(y)


def bend(w: np.ndarray, x, y, v: np.ndarray) -> np.ndarray:
    """Its Hessian times v: with u = v x, every sample adds (p ∘ (u − pᵀu)) xᵀ."""
    inputs = np.array(x, dtype=float)
    p = chances(inputs @ w.T)
    u = inputs @ v.T
    return (p * (u - (p * u).sum(1, keepdims=True))).T @ inputs / len(y)
