"""The embedded broker (amqtt), which serves mediators only, and the way to an external one."""
