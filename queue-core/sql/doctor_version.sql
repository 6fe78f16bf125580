-- Returns the server's version and time.
-- Safe: read-only.
select current_setting('server_version_num')::int as number, current_setting('server_version') as name, clock_timestamp() as at
