"""What each slot should run, and the steps from what it runs to that. Nothing here waits.

The configuration, devices, versions on disk, failures and requests come in; plans and steps for `pool.serve` go out.
"""
