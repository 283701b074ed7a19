"""Leases of any kind: the keeper renews what this process holds and tells holders what is lost.

`LeaseRenewal` keeps one lease of any service alive, given a `LeaseClient`; `client_from` makes one
of a function. No engine, no worker and no service of tenure's own is needed.
"""

from tenure.core.lease import (
    Beat,
    Busy,
    Extended,
    Extension,
    Failed,
    LeaseTimes,
    Lost,
    lease_times,
    message_times,
)
from tenure.errors import LeaseLost
from tenure.leases.adapter import FunctionClient, client_from
from tenure.leases.client import LeaseClient, Preparing
from tenure.leases.grant import Grant
from tenure.leases.holder import Holder
from tenure.leases.keeper import LeaseKeeper
from tenure.leases.lease import Lease
from tenure.leases.process import default_keeper
from tenure.leases.renewal import LeaseRenewal
from tenure.leases.verdicts import verdict

__all__ = [
    "Beat",
    "Busy",
    "Extended",
    "Extension",
    "Failed",
    "FunctionClient",
    "Grant",
    "Holder",
    "Lease",
    "LeaseClient",
    "LeaseKeeper",
    "LeaseLost",
    "LeaseRenewal",
    "LeaseTimes",
    "Lost",
    "Preparing",
    "client_from",
    "default_keeper",
    "lease_times",
    "message_times",
    "verdict",
]
