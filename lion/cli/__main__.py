"""`python -m lion.cli`, for torchrun and accelerate."""

import sys

from lion.cli import main

sys.exit(main())
