"""The changes that `tools/mutate.py` makes, and the test that must notice each.

A guard that is removed here must be missed by somebody. Whoever moves a guard moves its line here.
"""

from tools.mutations.around import AROUND
from tools.mutations.callers import CALLERS
from tools.mutations.core import CORE
from tools.mutations.limits import LIMITS
from tools.mutations.memory import MEMORY
from tools.mutations.operations import OPERATIONS
from tools.mutations.postgres import POSTGRES
from tools.mutations.redis import REDIS
from tools.mutations.schedules import SCHEDULES
from tools.mutations.sqlite import SQLITE
from tools.mutations.suite import SUITE
from tools.mutations.telling import TELLING

MUTATIONS = (
    *AROUND,
    *CALLERS,
    *CORE,
    *LIMITS,
    *MEMORY,
    *OPERATIONS,
    *POSTGRES,
    *REDIS,
    *SCHEDULES,
    *SQLITE,
    *SUITE,
    *TELLING,
)
