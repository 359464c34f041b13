"""The rig: behaviours of boards, real or virtual, under test."""
