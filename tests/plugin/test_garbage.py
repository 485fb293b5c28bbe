"""What was imported is not looked through for garbage while tests run, and is afterwards."""

import pytest


def test_what_stands_is_passed_over_until_the_end(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import atexit, gc
        atexit.register(lambda: print("frozen at the end:", gc.get_freeze_count()))
        """
    )
    pytester.makepyfile(
        """
        import gc, sys

        def test_what_is_frozen():
            assert gc.get_freeze_count() > len(sys.modules)
        """
    )
    ran = pytester.runpytest_subprocess("-p", "d5test.plugin")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["frozen at the end: 0"])
