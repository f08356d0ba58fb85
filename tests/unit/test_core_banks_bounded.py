"""What a bank keeps of batches that have ended is bounded, whatever the numbers of the batches that it gets."""

from simulation.driver import Driver


def test_models_that_take_turns_leave_no_batches_behind() -> None:
    driver = Driver(["a"], ["b"]).serve()
    for number in range(1, 2001):
        driver.submit("ab"[number % 2], job=number)
        driver.done(driver.run_of(number))
        driver.log.clear()
    for bank in driver.machine._dispatch._bank.values():
        assert len(bank._ends) < 200, "each keeps its jobs"
