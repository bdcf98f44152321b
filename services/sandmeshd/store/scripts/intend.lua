-- Records that a READY sandbox is to be paused, or a PAUSED one resumed, before its driver is called. Returns {kind,
-- record}: intended; done where it is so already; missing; lost where the token is not the one in force; busy where
-- another intent is in progress, or its state allows none; quota, and {kind, name, quota, in use, limit}, where it would
-- count against one that is reached.
local found = redis.call('HMGET', record(args.id), 'state', 'token', 'intent', 'owner')
if not found[1] then return {'missing'} end
if found[2] ~= args.token then return {'lost', whole(args.id)} end
if found[1] == args.target and found[3] == '' then return {'done', whole(args.id)} end
local fits = found[1] == 'READY' or found[1] == 'PAUSED'
local free = found[3] == '' or found[4] == args.owner or not is_alive(found[4], args.grace_us)
if not fits or not free then return {'busy', whole(args.id)} end
local reached = rest_reached(args.id, args.target == 'PAUSED')
if reached then return {'quota', whole(args.id), unpack(reached)} end
count_paused(args.id, args.target == 'PAUSED')
redis.call('HSET', record(args.id), 'intent', args.target, 'owner', args.owner)
redis.call('SADD', key('acting'), args.id)
return {'intended', whole(args.id)}
