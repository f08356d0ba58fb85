"""What each slot should run, and the steps from what it runs to that.

Facts come in: the configuration, the devices, the versions on disk, what failed, who asked for what. Plans and steps
go out. `pool.serve` acts on them. Nothing here waits, and only `versions` and `footprints` look at a disk.

    Facts ─ planned ─► Plan ─ Rollout.steps, beside what runs ─► Open, Retire, Failed ─► facts change, and again
"""
