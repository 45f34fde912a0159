"""Command line: ``python -m graph_transplant``."""

from __future__ import annotations

import sys

from graph_transplant.cli import main

if __name__ == "__main__":
    sys.exit(main())
