-- Creates a session or finds it, and extends its retention. Returns {whether it was created, created_us, now_us}.
local session = key('user_session', args.session)
local made = redis.call('HSETNX', session, 'created_us', text(now))
redis.call('HSET', session, 'user', args.user, 'name', args.name)
redis.call('EXPIRE', session, args.keep_seconds)
redis.call('ZADD', key('user', args.user_key), 0, args.session)
redis.call('EXPIRE', key('user', args.user_key), args.keep_seconds)
return {made, redis.call('HGET', session, 'created_us'), text(now)}
