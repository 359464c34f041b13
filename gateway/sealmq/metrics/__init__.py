"""/metrics and /healthz of a site, in a process of its own that has no secret."""
