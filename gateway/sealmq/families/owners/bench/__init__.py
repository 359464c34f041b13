"""What owner policies cost. Part of a checkout alone."""
