# pip install "psycopg[binary]"; python3 examples/any_language/client.py
import os
from datetime import timedelta

import psycopg
from psycopg.types.json import Jsonb

db = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
db.execute("create temporary table guest (name text)")


def enqueue(name, **options):
    """Enqueues in the transaction that is open, if one is."""
    sql = "select queue.enqueue('greet', %s, %s)"
    return db.execute(sql, [Jsonb({"name": name}), Jsonb(options)]).fetchone()[0]


def status(job):
    return db.execute("select state, attempts, error from queue.status(%s)", [job]).fetchone()


def wait(job, timeout):
    return db.execute("select state, output, error from queue.wait(%s, %s)", [job, timeout]).fetchone()


# The job is part of your transaction: after a rollback it does not exist.
with db.transaction(force_rollback=True):
    db.execute("insert into guest values ('nobody')")
    job = enqueue("nobody")
print("rolled back:", 0 if status(job) is None else 1, "jobs")

# After the commit it runs.
with db.transaction():
    db.execute("insert into guest values ('ada')")
    job = enqueue("ada")

# Its result. None if it has not finished after 10 s.
state, output, error = wait(job, timedelta(seconds=10))
print(f"{state}: {output or error}")

# A job for tomorrow.
job = enqueue("bob", after="1 day")
print(status(job)[0])
print("over in 50 ms:", 0 if wait(job, timedelta(milliseconds=50)) is None else 1)
print(db.execute("select queue.cancel(%s)", [job]).fetchone()[0])
print(status(job)[0])

# An operation that the job's state does not allow is an error that names the state.
try:
    db.execute("select queue.cancel(%s)", [job])
except psycopg.errors.ObjectNotInPrerequisiteState as refused:
    print("refused:", refused.sqlstate)
