"""The mediator's decisions, without I/O: events in, effects and bytes out (gateway/DESIGN.md)."""
