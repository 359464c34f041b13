"""The act of the demo that is about owners; part of a checkout, as the demo is."""
