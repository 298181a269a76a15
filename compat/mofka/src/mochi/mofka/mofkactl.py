"""`python -m mochi.mofka.mofkactl`: what the command `mofkactl` does."""

import sys

from thalweg_mofka.commands.mofkactl import main

if __name__ == "__main__":
    sys.exit(main())
