-- Returns the plan_cache_mode of this connection. The caller requests a mode at startup, so the result shows whether a pooler passes
-- startup settings to the server.
-- Safe: read-only.
select current_setting('plan_cache_mode') as mode
