"""`python -m transduce`, but `--watch` looks at the bundles ten times a second instead of every two seconds."""

import sys

from app import bundle_watch
from transduce.cli import main

vars(bundle_watch)["POLL_S"] = 0.1

if __name__ == "__main__":
    sys.exit(main())
