-- Creates the record of a sandbox for a pool, where the pool lacks one, there is room and nobody waits for it.
-- Answers {1, record} or {0}.
redis.call('HSET', key('pools'), args.want.spec_key, args.want.template)
if field(args.id, 'state') == 'PENDING' then return {1, whole(args.id)} end
if redis.call('SCARD', key('pooled', args.want.spec_key)) >= args.size then return {0} end
if redis.call('ZCARD', key('queue')) > 0 then return {0} end
local node = room_for(args.want)
if not node then return {0} end
create(args.id, args.want, node, '', ARGV[2])
redis.call('SADD', key('pooled', args.want.spec_key), args.id)
return {1, whole(args.id)}
