"""The systems that the pool is measured beside: installed, started, driven and ended."""
