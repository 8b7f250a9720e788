"""What a device trains in a round, and what a round does with it, in NumPy and float64, one row at a time.

This is the paper's Algorithm 1 with the rules of docs/accounting.md, written to be read: the noisy step (rules S1, S5
and S6), the clipped update (rule S4), noise once (rule S7), and the mean. Nothing here is fast, and nothing is shared
with choral. Where choral's numbers are float32, its noise is wider than the plan's by a factor that covers the
difference; `spread` is the deviation that it really adds to a sum.
"""

import math
from itertools import pairwise

import numpy as np

LONGEST_MODEL = 1e3  # V of rule S7
COUNT = 0.2  # λ of an adaptive clip


# ---- One row: its loss's gradient in the model, for dense layers with ReLU between them --------------------------


def split(widths, flat):
    """The flat vector as (weight, bias) of each layer."""
    layers, at = [], 0
    for fan, out in pairwise(widths):
        weight = flat[at : at + fan * out].reshape(fan, out)
        layers.append((weight, flat[at + fan * out : at + fan * out + out]))
        at += fan * out + out
    return layers


def slope_of(link, scores, label):
    """The gradient of one row's loss in its scores: cross entropy, logistic, or half the squared error."""
    if link == "softmax":
        powers = np.exp(scores - scores.max())
        return powers / powers.sum() - (np.arange(len(scores)) == label)
    if link == "sigmoid":
        return 1 / (1 + np.exp(-scores)) - label
    return scores - label


def gradient(widths, link, flat, row, label):
    """The gradient of one row's loss, by the chain rule."""
    layers, inputs = split(widths, flat), [row]
    for weight, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
    slope = slope_of(link, inputs[-1] @ layers[-1][0] + layers[-1][1], label)
    parts = []
    for (weight, _), below in zip(layers[::-1], inputs[::-1], strict=True):
        parts.append(np.concatenate([np.outer(below, slope).ravel(), slope]))
        slope = (weight @ slope) * (below > 0)
    return np.concatenate(parts[::-1])


def clipped(vector, clip):
    """The vector, scaled to a length of at most the clip."""
    length = np.linalg.norm(vector)
    return vector if length <= clip else vector * (clip / length)


# ---- Rules S1, S5 and S6: noise in every step ---------------------------------------------------------------------


def clipped_sum(widths, link, theta, rows, labels, chosen, clip):
    """Lines 6 and 7: Σ over the chosen rows of their gradients, each clipped to G."""
    total = np.zeros_like(theta)
    for row in chosen:
        total += clipped(gradient(widths, link, theta, rows[row].astype(np.float64), labels[row]), clip)
    return total


def noisy_steps(widths, link, start, rows, labels, batches, gaussians, *, step_size, clip, spread, batch, weight=1.0):
    """Lines 5 to 10: θ_i − θ after one step for each batch.

    The noise is added to the sum over a batch, and the divisor is γ, whatever the batch holds. `weight` is what the
    update of a device with more rows counts for. One step without noise is rule S6, whose noise the codec adds.
    """
    theta = start.astype(np.float64)
    for chosen, drawn in zip(batches, gaussians, strict=True):
        noisy = clipped_sum(widths, link, theta, rows, labels, chosen, clip) + spread * drawn
        theta = theta - step_size * noisy / batch
    return (theta - start) * weight


# ---- Rule S4: the whole update is clipped -------------------------------------------------------------------------


def clipped_update(update, *, clip, spread, drawn):
    """An update that any steps ended in, clipped to S as one vector, with noise of deviation σ_u."""
    return clipped(update, clip) + spread * drawn


def counted_update(update, *, clip, spread, drawn):
    """The same in units of a clip that was sent, and ±λ/2 for whether the update is within it; noise on all of it."""
    within = COUNT / 2 if np.linalg.norm(update) <= clip else -COUNT / 2
    return np.append(clipped(update / clip, 1.0), within) + spread * drawn


# ---- Rule S7: noise once ------------------------------------------------------------------------------------------

LIPSCHITZ = {"softmax": 1 / 2, "sigmoid": 1 / 4, "squared": 1.0}  # L for rows of length 1


def steps_of(link, rows, *, time, divisor, row_length, least=1, pull=math.inf, parts=1):
    """K: none of the steps is longer than 0.95 · 2/(m·L/γ + 2/κ), and every part is used as often."""
    largest = math.ceil(rows / parts) * parts
    stiffness = LIPSCHITZ[link] * row_length**2 * largest / divisor + 2 / pull
    count = max(least, math.ceil(time * stiffness / (2 * 0.95)))
    return math.ceil(count / parts) * parts


def convex_slope(link, scores, label, reach):
    """A row's slope, cut so that it stays the gradient of a convex loss; `reach` is G over the row's length.

    Of a softmax, where the probability of the row's class falls short of 1 by more than reach/√2. With one output or
    two, that is a slope no longer than the reach.
    """
    slope = slope_of(link, scores, label)
    if link == "softmax":
        return slope * min(1.0, reach / math.sqrt(2) / max(-slope[label], 1e-300))
    return clipped(slope, reach)


def noise_once(
    link, start, rows, labels, *, steps, time, divisor, clip, row_length, bound, pull=math.inf, parts=1
):  # fmt: skip
    """u = clip_B(v − θ) after K projected steps without noise over all rows, or over one part of them after the other.

    `start` has a row of numbers for each feature and one for the intercept, and a column for each output.
    """
    eta, model = time / steps, start.astype(np.float64)
    ones = np.concatenate([rows.astype(np.float64), np.ones((len(rows), 1))], axis=1)
    short = [clipped(row, row_length) for row in ones]
    for step in range(steps):
        total = np.zeros_like(model)
        for number in range(step % parts, len(short), parts):
            row = short[number]
            total += np.outer(row, convex_slope(link, row @ model, labels[number], clip / np.linalg.norm(row)))
        model = model - eta * (parts / divisor * total + (model - start) / pull)
        model = clipped(model, LONGEST_MODEL)
    return clipped(model - start, bound).ravel()


def movement(*, steps, time, divisor, clip, pull=math.inf):
    """Δ: how far one replaced record can move an upload, 2GT/γ, or less with a pull."""
    if pull == math.inf:
        return 2 * clip * time / divisor
    return 2 * clip * pull / divisor * (1 - (1 - time / steps / pull) ** steps)


# ---- A round ------------------------------------------------------------------------------------------------------


def integers(update, dither, grid):
    """An update in steps of the grid, rounded up where the dither lies below the fraction."""
    scaled = update.astype(np.float64) / grid
    whole = np.floor(scaled)
    return whole.astype(np.int64) + (dither < scaled - whole)


def moved(theta, totals, grid):
    """Line 12: θ plus the mean of the included devices' integers."""
    return theta + np.sum(totals, axis=0) / len(totals) * grid
