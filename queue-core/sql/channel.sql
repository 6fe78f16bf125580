-- Returns the name of the store's channel $1, 'wake' or 'over'. It is a secret: a role that knows it can notify all listeners.
select queue.channel($1)
