"""The mediator:
authorises what clients publish and wraps it again for readers; holds no root and sees no plaintext.
"""
