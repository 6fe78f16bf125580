-- Which server this is, and what time it has.
-- Safe: it only reads.
select current_setting('server_version_num')::int as number, current_setting('server_version') as name, clock_timestamp() as at
