"""Makes the test vectors from the text of SPEC.md, without sealmq_spec, which the vectors test."""
