"""`python -m transduce` runs the `transduce` command."""

import sys

from transduce.cli import main

sys.exit(main())
