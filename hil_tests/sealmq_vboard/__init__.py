"""A virtual ESP32 that esptool and mpremote accept."""
