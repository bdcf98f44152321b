-- Creates the record of a sandbox for a pool, where the pool lacks one, there is capacity and no request waits for it.
-- Returns {1, record} or {0}.
redis.call('HSET', key('pools'), args.want.spec_key, args.want.template)
local state = field(args.sandbox_id, 'state')
if state == 'PENDING' then return {1, whole(args.sandbox_id)} end
if existed(args.sandbox_id) or redis.call('SCARD', key('pooled', args.want.spec_key)) >= args.size then return {0} end
if lacks_room() or cost_reached(args.cost_limit) then return {0} end
local node = room_for(args.want)
if not node then return {0} end
create(args.sandbox_id, args.want, node)
redis.call('SADD', key('pooled', args.want.spec_key), args.sandbox_id)
event(args.sandbox_id, 'created', 'for a pool')
return {1, whole(args.sandbox_id)}
