-- Withdraws the claim of a client that disconnected: it leaves the queue, and if it was the last that waited for a
-- sandbox being created, that one is stopped. Returns {id} of what was stopped, or {}.
redis.call('SET', key('left', args.ticket), '1', 'EX', 60)
drop_ticket(args.ticket)
wake_next()
local id = redis.call('HGET', key('session', args.session), args.slot) or nil
if not id or redis.call('ZREM', key('interest', id), args.ticket) == 0 then return {} end
redis.call('ZREMRANGEBYSCORE', key('interest', id), '-inf', text(now - 5000000))
if redis.call('ZCARD', key('interest', id)) > 0 then return {} end
stop(id, 'the client that requested it went away')
return {id}
