"""Makes the test vectors from the text of SPEC.md. Nothing here may import sealmq_spec, which the vectors test."""
