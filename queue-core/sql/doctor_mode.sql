-- Returns the plan_cache_mode of this connection. A connection sets the mode at startup.
-- Safe: read-only.
select current_setting('plan_cache_mode') as mode
