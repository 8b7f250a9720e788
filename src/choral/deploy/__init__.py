"""A deployment between organisations: enrolment, sites, the server, and the processes that carry them."""
