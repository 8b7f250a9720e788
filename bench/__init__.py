"""Ratios against peers and limits, each measured beside the other in one run."""
