-- Extends a lease. Returns {kind, record}: renewed, missing, or lost where the token is not the one in force.
local found = redis.call('HMGET', record(args.id), 'state', 'token', 'holder')
if not found[1] then
  if redis.call('EXISTS', key('tomb', args.id)) == 1 then return {'lost'} end
  return {'missing'}
end
local over = found[1] == 'STOPPING' or found[1] == 'FAILED'
if over or found[3] == '' or found[2] ~= args.token then return {'lost', whole(args.id)} end
set_deadline(args.id, args.ttl_us)
event_once(args.id, 'renewed', '')
return {'renewed', whole(args.id)}
