"""`python -m rocketmq_cli` is `rmq`."""

from __future__ import annotations

import sys

from rocketmq_cli.main import main

sys.exit(main())
