"""`python -m transduce` is the `transduce` command."""

import sys

from transduce.cli import main

sys.exit(main())
