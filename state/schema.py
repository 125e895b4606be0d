"""The archive's tables, as a list of migrations: a database of an older version is brought up to date."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

MIGRATIONS = Migrations("ksearch")


@MIGRATIONS()
def archive(db: Database) -> None:
    """Programs and verdicts belong to no run; model calls, events and branches belong to one."""
    for statement in _TABLES.split(";"):
        db.execute(statement)


@MIGRATIONS()
def accounts(db: Database) -> None:
    """What of a call's tokens was cached and thought, and why its reply ended."""
    for column in ("cached_tokens INTEGER", "reasoning_tokens INTEGER", "finish TEXT"):
        db.execute(f"ALTER TABLE model_calls ADD COLUMN {column}")


_TABLES = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, task TEXT, status TEXT, model TEXT, world_model TEXT, coder TEXT,
    budget INTEGER, evaluations INTEGER, attempts INTEGER, best_score REAL, best_program TEXT,
    branch TEXT, settings TEXT, created TEXT, updated TEXT
);
CREATE TABLE programs (id TEXT PRIMARY KEY, language TEXT, source BLOB, created TEXT);
CREATE TABLE verdicts (
    program TEXT, task_hash TEXT, evaluator TEXT, hardware TEXT, purpose TEXT, kind TEXT, score REAL,
    verdict TEXT, seconds REAL, created TEXT,
    PRIMARY KEY (program, task_hash, evaluator, hardware, purpose)
);
CREATE TABLE baselines (run TEXT PRIMARY KEY, timings TEXT, created TEXT);
CREATE TABLE model_calls (
    run TEXT, branch TEXT, node TEXT, ordinal INTEGER, role TEXT, prompt_hash TEXT, template TEXT,
    variables BLOB, reply BLOB, model TEXT, input_tokens INTEGER, output_tokens INTEGER, seconds REAL,
    created TEXT,
    PRIMARY KEY (run, branch, node, ordinal, role, prompt_hash)
);
CREATE TABLE branches (run TEXT, branch TEXT, parent TEXT, at INTEGER, PRIMARY KEY (run, branch));
CREATE TABLE events (
    run TEXT, branch TEXT, seq INTEGER, round INTEGER, kind TEXT, author TEXT, event TEXT,
    program TEXT GENERATED ALWAYS AS (json_extract(event, '$.program_id')) VIRTUAL,
    PRIMARY KEY (run, branch, seq)
);
CREATE INDEX attempted ON events (run, branch, program) WHERE kind = 'attempt'
"""
