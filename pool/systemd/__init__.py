"""The pool as a service of systemd: what it tells the manager, and the unit that it is started by."""
