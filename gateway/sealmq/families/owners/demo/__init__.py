"""The act of the demo in which people say who receives what is about them; part of a checkout, as the
demo is."""
