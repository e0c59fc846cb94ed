"""Job ids: random UUIDs that are given out once."""

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import and_, or_

from queuey_rabbitmq.core.job_ids import READ_AT_A_TIME, new_job_id

A_PARENT_AND_ITS_CHILD = """
import os
from queuey_rabbitmq.core.job_ids import new_job_id

new_job_id()  # some more are there now
ours, theirs = os.pipe()
if os.fork() == 0:
    os.write(theirs, str(new_job_id()).encode())
    os._exit(0)
os.wait()
print(new_job_id(), os.read(ours, 36).decode())
"""


def test_a_job_id_is_a_random_uuid_of_version_4() -> None:
    ids = [new_job_id() for _ in range(3 * READ_AT_A_TIME)]
    assert {(type(job_id), job_id.version, job_id.variant) for job_id in ids} == {(uuid.UUID, 4, uuid.RFC_4122)}
    assert all(uuid.UUID(str(job_id)) == job_id for job_id in ids)
    # Every bit but the six that say the version is sometimes set and sometimes not.
    assert (_any_set(ids) ^ _all_set(ids)).bit_count() == 122


def test_no_id_is_given_to_two_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = [job_id for taken in pool.map(lambda _: [new_job_id() for _ in range(500)], range(8)) for job_id in taken]
    assert len(set(ids)) == len(ids)


def test_a_forked_child_gives_out_other_ids_than_its_parent() -> None:
    done = subprocess.run(  # noqa: S603 -- this interpreter, and a program from this file
        [sys.executable, "-c", A_PARENT_AND_ITS_CHILD], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    ours, theirs = map(uuid.UUID, done.stdout.split())
    assert ours != theirs


def _any_set(ids: list[uuid.UUID]) -> int:
    return reduce(or_, (job_id.int for job_id in ids))


def _all_set(ids: list[uuid.UUID]) -> int:
    return reduce(and_, (job_id.int for job_id in ids))
