-- Returns the name of the store's channel $1, which is 'wake' or 'over'. The name is a secret: a role that knows the name can notify all listeners.
-- $1 kind of channel
select queue.channel($1)
