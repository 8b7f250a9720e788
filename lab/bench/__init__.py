"""Ratios against peers and limits, measured next to each other in one run."""
