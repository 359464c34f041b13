"""What judging between sites costs. Part of a checkout alone."""
