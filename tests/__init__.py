import os

SEED = int(os.environ.get("LION_TEST_SEED", "0"))  # added to all seeds of the tests: they are to pass for every one
THOROUGH = bool(os.environ.get("LION_THOROUGH"))  # as `make thorough` has it: with what takes long, too
