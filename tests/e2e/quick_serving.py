"""`python -m benchmarks.serving`, but many clients are 6, not 32."""

import sys

from benchmarks import serving

serving.NUM_CLIENTS = 6

if __name__ == "__main__":
    sys.exit(serving.main())
