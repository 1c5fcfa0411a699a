"""Rights are exact: what was used in a day is granted, and what is granted was used."""

from tests.install import rights
from tests.install.town import NAMESPACE

UPSTREAM = "kube-scheduler"


def test_compare(lived_in):
    granted = rights.granted(lived_in.objects)
    done = rights.done(lived_in.audit.read_text(), NAMESPACE)
    for account in sorted(granted):
        deeds = {deed for deed in done.get(account, ()) if deed.program != UPSTREAM}
        print(account)
        print("  lacking", rights.lacking(granted[account], deeds))
        print("  idle", rights.idle(granted[account], deeds))
    raise AssertionError
