-- Sends a notification, as pg_notify does. Citus may prepare a transaction that was started on another node, and a prepared transaction
-- cannot notify. In such a transaction, the function stores the notification, and the next worker that polls sends it.
create or replace function queue_here.send(channel text, payload text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if left(current_setting('application_name'), 14) = 'citus_internal' then
    -- Invalid notifications are rejected here, as in pg_notify. Otherwise they would fail later, together with the notifications of other
    -- sessions.
    if octet_length(send.payload) > 7999 or octet_length(send.channel) = 0 or octet_length(send.channel) > 63 then
      raise exception using errcode = '22023', message = 'queue: the notification is too long, or its channel name is empty or too long';
    end if;
    insert into queue.notification (id, channel, payload) values (nextval('queue.id_seq'), send.channel, send.payload);
  else
    perform pg_notify(send.channel, send.payload);
  end if;
end
$$;

-- Sends the stored notifications, at most 1,000 per call. Returns false if no notification is stored. Concurrent calls send different
-- notifications.
create or replace function queue_here.relay() returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  record;
begin
  if not exists (select from queue.notification) then
    return false;
  end if;
  perform queue_here.held();
  for one in
    with taken as (
      delete from queue.notification t
      where t.id = any (array(select o.id from queue.notification o order by o.id limit 1000 for update skip locked))
      returning t.id, t.channel, t.payload
    )
    select t.channel, t.payload from taken t group by t.channel, t.payload order by min(t.id)
  loop
    perform pg_notify(one.channel, one.payload);
  end loop;
  return true;
end
$$;
