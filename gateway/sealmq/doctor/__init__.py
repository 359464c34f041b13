"""`sealmq doctor`: what must fail is tried, with clients and topics of its own, and reported."""
