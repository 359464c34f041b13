"""`sealmq bench blinded`: what matching costs."""
