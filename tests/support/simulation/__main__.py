"""`./run simulate`."""

import sys

# Processes that run seeds find no function in a module of this name.
from support.simulation.seeds import main

if __name__ == "__main__":
    sys.exit(main())
