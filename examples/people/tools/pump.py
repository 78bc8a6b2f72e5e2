"""A pump that has stopped: `read` tells its state, `restart` starts it."""

import sys

sys.stdout.write({"read": "state: stopped; level: 91 % and rising\n", "restart": "the pump runs\n"}[sys.argv[1]])
