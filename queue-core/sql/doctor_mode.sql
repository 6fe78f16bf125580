-- Returns a setting that was sent at the start of the connection.
-- Safe: read-only.
select current_setting('plan_cache_mode') as mode
