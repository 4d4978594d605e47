"""`python -m fedloom`."""

import sys

from fedloom.cli import main

sys.exit(main())
