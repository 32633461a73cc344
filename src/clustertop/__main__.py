"""``python -m clustertop``."""

import sys

from clustertop.cli import main

sys.exit(main())
