"""A site on disk: sealmq.toml, paths and permissions, the key that lies outside."""
