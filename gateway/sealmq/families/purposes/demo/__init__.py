"""The act of the demo that is about purposes; part of a checkout, as the demo is."""
