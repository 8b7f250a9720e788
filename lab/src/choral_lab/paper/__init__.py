"""The paper's experiments, each by configuration of the one engine: `choral reproduce`."""
