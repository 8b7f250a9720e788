"""Ways to run one plan, each into a folder that can be resumed, checked and read."""
