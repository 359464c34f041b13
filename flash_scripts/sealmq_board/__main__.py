"""`python -m sealmq_board`: what `sealmq board` becomes."""

from .cli import main

raise SystemExit(main())
