"""`sealmq blinded`, for operators: what the key generator alone keeps."""
