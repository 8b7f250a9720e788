"""Tables as people have them, the columns that are declared, and the records of devices."""
