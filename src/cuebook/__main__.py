"""Run the command line with `python -m cuebook`."""

import sys

from cuebook.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
