"""What is measured of the allowlist, part of a checkout: it uses the modules of gateway/bench."""
