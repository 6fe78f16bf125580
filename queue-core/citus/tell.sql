-- Notifies a channel like pg_notify. The transaction of a session from another node may be prepared, and must then not notify. Such a session
-- stores the notification, and the next worker that polls sends it.
create or replace function queue_here.tell(channel text, payload text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if left(current_setting('application_name'), 14) = 'citus_internal' then
    -- Invalid notifications are rejected here, as in pg_notify. Later they would fail together with those of other sessions.
    if octet_length(tell.payload) > 7999 or octet_length(tell.channel) = 0 or octet_length(tell.channel) > 63 then
      raise exception using errcode = '22023', message = 'queue: the notification is too long, or its channel name is empty or too long';
    end if;
    insert into queue.told (id, channel, payload) values (nextval('queue.id_seq'), tell.channel, tell.payload);
  else
    perform pg_notify(tell.channel, tell.payload);
  end if;
end
$$;

-- Sends the stored notifications. Returns whether there were any. Concurrent calls send different notifications.
create or replace function queue_here.relay() returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  record;
begin
  if not exists (select from queue.told) then
    return false;
  end if;
  perform queue_here.held();
  for one in
    with taken as (
      delete from queue.told t
      where t.id = any (array(select o.id from queue.told o order by o.id limit 1000 for update skip locked))
      returning t.id, t.channel, t.payload
    )
    select t.channel, t.payload from taken t group by t.channel, t.payload order by min(t.id)
  loop
    perform pg_notify(one.channel, one.payload);
  end loop;
  return true;
end
$$;
