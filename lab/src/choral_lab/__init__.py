"""The lab of choral: experiments over repeats, the paper's figures, audits, demonstrations of attacks, and bounds.

The product never imports it. Its verbs are found through the entry points of the group `choral.verbs`.
"""

__version__ = "0.2.0"
