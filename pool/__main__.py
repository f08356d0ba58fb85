"""`python -m pool` is the command `pool`."""

from pool.cli import main

if __name__ == "__main__":
    main()
