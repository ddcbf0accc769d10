-- run-scratch, schema 2: everything the store keeps.
--
-- This file is the whole schema and the only place where it stands: the code executes it as it is.
-- Times are INTEGER milliseconds since the Unix epoch, UTC. Sizes are bytes. Ids and keys are text of
-- 1 to 256 bytes without control characters; the code checks that before anything gets here.
-- "Live" means expires_at > now. What is not live does not exist for any verb; the sweeper only reclaims it.

-- Who acts. Deleting an agent deletes the runs that it owns and all that it stored anywhere.
CREATE TABLE agents (
    agent_id    TEXT    NOT NULL PRIMARY KEY
) STRICT;

-- One execution of an agent. Deleting a run deletes everything of it; completing it only sets completed_at.
CREATE TABLE runs (
    run_id       TEXT    NOT NULL PRIMARY KEY,
    agent_id     TEXT    NOT NULL REFERENCES agents (agent_id) ON DELETE CASCADE,  -- the owning agent
    created_at   INTEGER NOT NULL,            -- ms
    completed_at INTEGER,                     -- ms; NULL while the run is open
    bytes        INTEGER NOT NULL DEFAULT 0   -- sum of scratch_entries.size, kept by the triggers below:
                                              -- the quota reads one number instead of adding up rows
) STRICT;

CREATE INDEX runs_by_agent ON runs (agent_id);

-- Who takes part in a run, its owner included. (run_id, agent_id) is the scope of every read and write.
CREATE TABLE run_agents (
    run_id   TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL REFERENCES agents (agent_id) ON DELETE CASCADE,
    PRIMARY KEY (run_id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_agents_by_agent ON run_agents (agent_id);

-- One row for each stored result (handle), note and artifact. The content is in scratch_chunks, so that
-- listing never reads it.
CREATE TABLE scratch_entries (
    entry_id    INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused
    run_id      TEXT    NOT NULL,
    agent_id    TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('handle', 'note', 'artifact')),
    key         TEXT    NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 256),  -- bytes
    size        INTEGER NOT NULL CHECK (size >= 0),      -- bytes of content
    tokens      INTEGER CHECK (tokens >= 0),             -- about how many tokens; NULL when not text
    media_type  TEXT    NOT NULL,                        -- text/plain, application/json, application/octet-stream
    preview     TEXT    NOT NULL,                        -- head and tail of the content, at most 1,024 bytes
    source_tool TEXT,                                    -- name of the tool that returned it; NULL for notes
    version     INTEGER NOT NULL CHECK (version >= 1),   -- counts the writes to this key
    created_at  INTEGER NOT NULL,                        -- ms, of the first version
    expires_at  INTEGER NOT NULL,                        -- ms
    UNIQUE (run_id, agent_id, kind, key),
    FOREIGN KEY (run_id, agent_id) REFERENCES run_agents (run_id, agent_id) ON DELETE CASCADE
) STRICT;

CREATE INDEX scratch_entries_by_expiry ON scratch_entries (expires_at);

-- Every agent of a run can read its artifacts by name, so a name stands for one artifact in the run.
CREATE UNIQUE INDEX scratch_entries_artifact_name ON scratch_entries (run_id, key) WHERE kind = 'artifact';

-- The content: pieces of 65,536 bytes, the last one shorter; piece seq starts at byte seq * 65536. Always BLOB:
-- TEXT stops at a NUL and cannot hold a lone surrogate. An empty content has no piece.
CREATE TABLE scratch_chunks (
    entry_id INTEGER NOT NULL REFERENCES scratch_entries (entry_id) ON DELETE CASCADE,
    seq      INTEGER NOT NULL CHECK (seq >= 0),
    data     BLOB    NOT NULL CHECK (length(data) BETWEEN 1 AND 65536),
    PRIMARY KEY (entry_id, seq)
) STRICT;

-- What was done with this store by all processes, added up (scratch/metrics.py says what each name stands for). Whoever
-- has the store open adds its counts every few seconds and at close; deleting a run takes nothing away.
CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL   -- how often, or bytes; of "since": ms, when this table was made
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('since', CAST(strftime('%s', 'now') AS INTEGER) * 1000);

-- runs.bytes, kept on every way a row can come, change or go (sweeps and cascades included).
CREATE TRIGGER scratch_entries_added AFTER INSERT ON scratch_entries BEGIN
    UPDATE runs SET bytes = bytes + NEW.size WHERE run_id = NEW.run_id;
END;

CREATE TRIGGER scratch_entries_resized AFTER UPDATE OF size ON scratch_entries BEGIN
    UPDATE runs SET bytes = bytes + NEW.size - OLD.size WHERE run_id = NEW.run_id;
END;

CREATE TRIGGER scratch_entries_removed AFTER DELETE ON scratch_entries BEGIN
    UPDATE runs SET bytes = bytes - OLD.size WHERE run_id = OLD.run_id;
END;
