-- Returns the name of a notification channel of the store. The name is a secret: a role that knows the name can notify all listeners.
-- $1 purpose of the channel: 'wake' or 'over'
select queue.channel($1)
