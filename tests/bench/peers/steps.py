"""Measures steps of durable workflows with DBOS and Absurd, through their own clients. They correspond to F1 and F2 of `cargo bench-queue`.

    python3 -m venv peers && peers/bin/pip install dbos==3.4.0 absurd-sdk==0.5.1 'psycopg[binary]'
    peers/bin/python tests/bench/peers/steps.py --database-url postgres://user@host/name --postmaster PID --absurd-sql absurd.sql [--steps 2000] [--runs 3]

Each measurement creates a separate database on that server and drops it. The server must have no other clients: WAL and commits are counted for the
whole server, and CPU time for the children of the postmaster, which must run on this machine. Absurd's schema is not in its Python package: pass the file
`sql/absurd.sql` of its repository. Prints a line of JSON for each figure, with the fields of `cargo bench-queue --json`.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import psycopg

TICKS = os.sysconf("SC_CLK_TCK")


def spent(postmaster):
    """Returns the CPU time of a postmaster and its children, including exited ones, in seconds."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid, parent = int(stat.parent.name), int(fields[1])
        if pid == postmaster:
            total += sum(map(int, fields[11:15]))
        elif parent == postmaster:
            total += sum(map(int, fields[11:13]))
    return total / TICKS


class Server:
    def __init__(self, url, postmaster):
        self.url, self.postmaster = url, postmaster

    def now(self):
        time.sleep(1.2)  # the server adds up the activity of its sessions once a second
        with psycopg.connect(self.url, autocommit=True) as on:
            wal, commits = on.execute(
                "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, (select sum(xact_commit) from pg_stat_database)::bigint"
            ).fetchone()
        return spent(self.postmaster), wal, commits

    def fresh(self, name):
        with psycopg.connect(self.url, autocommit=True) as on:
            on.execute(f'drop database if exists "{name}" with (force)')
            on.execute(f'create database "{name}"')
        return psycopg.conninfo.make_conninfo(self.url, dbname=name) if "://" not in self.url else self.url.rsplit("/", 1)[0] + "/" + name


def dbos(server, workflows, steps):
    """Runs concurrent workflows, each on a DBOS thread. Returns the resources used."""
    from dbos import DBOS, DBOSConfig

    url = server.fresh("bench_dbos")
    DBOS.destroy(destroy_registry=True)
    DBOS(config=DBOSConfig(name="bench", system_database_url=url, run_admin_server=False, log_level="ERROR", sys_db_pool_size=max(workflows, 20)))

    @DBOS.step()
    def step(n):
        return n

    @DBOS.workflow()
    def run(count):
        for n in range(count):
            step(n)
        return count

    DBOS.launch()
    run(2)
    begin = server.now()
    handles = [DBOS.start_workflow(run, steps) for _ in range(workflows)]
    for handle in handles:
        assert handle.get_result() == steps
    end = server.now()
    with psycopg.connect(url, autocommit=True) as on:
        (journaled,) = on.execute("select count(*) from dbos.operation_outputs").fetchone()
        assert journaled >= workflows * steps, journaled
    DBOS.destroy(destroy_registry=True)
    return [after - before for before, after in zip(begin, end)]


def absurd(server, workflows, steps, schema):
    """Runs the same on an Absurd worker with one thread per workflow."""
    from absurd_sdk import Absurd

    url = server.fresh("bench_absurd")
    with psycopg.connect(url, autocommit=True) as on:
        on.execute(schema)
    app = Absurd(url, queue_name="bench")
    app.create_queue()
    over = threading.Semaphore(0)

    @app.register_task("run")
    def run(params, ctx):
        for n in range(params["steps"]):
            ctx.step(f"step-{n}", lambda n=n: n)
        over.release()
        return params["steps"]

    worker = threading.Thread(target=lambda: app.start_worker(concurrency=workflows, poll_interval=0.05), daemon=True)
    worker.start()
    client = Absurd(url, queue_name="bench")
    client.spawn("run", {"steps": 2}, queue="bench")
    over.acquire()
    begin = server.now()
    for _ in range(workflows):
        client.spawn("run", {"steps": steps}, queue="bench")
    for _ in range(workflows):
        over.acquire()
    end = server.now()
    app.stop_worker()
    worker.join(10)
    return [after - before for before, after in zip(begin, end)]


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--database-url", required=True)
    asked.add_argument("--postmaster", type=int, required=True)
    asked.add_argument("--absurd-sql", type=Path)
    asked.add_argument("--steps", type=int, default=2000)
    asked.add_argument("--runs", type=int, default=3)
    asked = asked.parse_args()
    logging.disable(logging.ERROR)
    server = Server(asked.database_url, asked.postmaster)
    peers = {"DBOS": dbos}
    if asked.absurd_sql:
        schema = asked.absurd_sql.read_text()
        peers["Absurd"] = lambda server, workflows, steps: absurd(server, workflows, steps, schema)
    for peer, measured in peers.items():
        for workload, workflows, steps in [("F1", 1, asked.steps), ("F2", 64, max(asked.steps // 64 * 4, 10))]:
            runs = [measured(server, workflows, steps) for _ in range(asked.runs)]
            for place, (unit, factor) in enumerate([("server us/step", 1e6), ("WAL B/step", 1), ("commits/step", 1)]):
                each = [run[place] * factor / (workflows * steps) for run in runs]
                figure = {"workload": workload, "variant": peer, "unit": unit, "median": round(statistics.median(each), 3), "runs": [round(one, 3) for one in each]}
                print(json.dumps(figure), flush=True)
    for name in ["bench_dbos", "bench_absurd"]:
        with psycopg.connect(asked.database_url, autocommit=True) as on:
            on.execute(f'drop database if exists "{name}" with (force)')


if __name__ == "__main__":
    sys.exit(main())
