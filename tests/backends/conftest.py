import os

os.environ["CHORAL_CACHE"] = "off"  # tests compile what they test, and leave nothing in the home folder
