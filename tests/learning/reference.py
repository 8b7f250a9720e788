"""Algorithm 1 written out in NumPy and double precision, one device, one step, one example at a time."""

from itertools import pairwise

import numpy as np


def split(widths, flat):
    """The flat vector as (weight, bias) of each layer."""
    layers, at = [], 0
    for fan, out in pairwise(widths):
        weight = flat[at : at + fan * out].reshape(fan, out)
        layers.append((weight, flat[at + fan * out : at + fan * out + out]))
        at += fan * out + out
    return layers


def gradient(widths, link, flat, x, y):
    """The gradient of one example's loss, by hand."""
    layers = split(widths, flat)
    inputs = [x]
    for weight, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
    out = inputs[-1] @ layers[-1][0] + layers[-1][1]
    if link == "softmax":
        slope = np.exp(out - out.max())
        slope = slope / slope.sum()
        slope[y] -= 1
    elif link == "sigmoid":
        slope = 1 / (1 + np.exp(-out)) - y
    else:
        slope = out - y
    parts = []
    for (weight, _), below in zip(layers[::-1], inputs[::-1], strict=True):
        parts.append(np.concatenate([np.outer(below, slope).ravel(), slope]))
        slope = (weight @ slope) * (below > 0)
    return np.concatenate(parts[::-1])


def local_update(widths, link, start, rows, labels, batches, noises, *, step_size, clip, sigma, batch):
    """Lines 5 to 10 for one device; `batches` is a list of row numbers for each step, `noises` standard Gaussians."""
    theta = start.astype(np.float64)
    for chosen, z in zip(batches, noises, strict=True):
        total = np.zeros_like(theta)
        for row in chosen:
            g = gradient(widths, link, theta, rows[row].astype(np.float64), labels[row])
            total += g * min(1.0, clip / max(np.linalg.norm(g), 1e-300))
        theta = theta - step_size * (total / batch + sigma * z)
    return theta - start
