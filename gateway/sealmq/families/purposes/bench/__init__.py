"""What is measured of purposes, part of a checkout: it uses the modules of gateway/bench."""
