"""What sources of attributes read ([attributes.NAME]): for the mediator, and for `sealmq explain`.

families/attributes.py is what policy families see of it.
"""
