"""Bytes and ring integers: keys, masks, shares, graphs and the codec of the secure sum."""
